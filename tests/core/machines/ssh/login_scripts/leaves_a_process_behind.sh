# expect: ready
sleep 30 &
