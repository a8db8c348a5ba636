# expect: ready
python3() { echo "no python for you"; }
sh() { echo "no shell either"; }
export -f python3 sh
