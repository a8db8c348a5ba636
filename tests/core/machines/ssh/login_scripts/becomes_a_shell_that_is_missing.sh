# expect: login ended
exec zsh-of-nowhere -l
