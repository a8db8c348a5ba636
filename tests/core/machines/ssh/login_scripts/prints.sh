# expect: ready
echo "Welcome to gpu1, $(id -un)!"
echo "Your quota is exceeded." >&2
