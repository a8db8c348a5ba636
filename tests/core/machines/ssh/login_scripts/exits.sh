# expect: login ended
echo "This host is for batch jobs only."
exit 3
