# expect: ready
unset PATH
