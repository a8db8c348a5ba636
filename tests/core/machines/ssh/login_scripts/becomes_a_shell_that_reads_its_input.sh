# expect: login waits
echo "switching to another shell"
exec sh
