# expect: login waits
printf 'Project [none]: '
read -r project
