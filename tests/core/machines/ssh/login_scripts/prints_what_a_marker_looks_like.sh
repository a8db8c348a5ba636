# expect: ready
echo
echo 0123456789abcdef0123456789abcdef
echo "0123456789abcdef0123456789abcdef none"
echo "called with: ${BASH_EXECUTION_STRING:-nothing}"
