# expect: ready
head -c 3000000 /dev/zero
head -c 3000000 /dev/zero | tr '\0' x
