# expect: ready
head -c 70000 /dev/urandom
printf '\000\377\376\001\012\015'
