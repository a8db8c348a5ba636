# expect: ready
set -xv
PS4='+ 0123456789abcdef0123456789abcdef '
