# expect: ready
stty -ixon erase '^H'
mesg n
tput setaf 1
set -o vi
