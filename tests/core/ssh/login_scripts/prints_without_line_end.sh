# expect: ready
printf 'Welc'
