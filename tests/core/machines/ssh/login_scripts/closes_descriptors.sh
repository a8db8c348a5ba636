# expect: ready
exec 2>&- 5>&- 9</dev/null
ulimit -c 0
umask 077
