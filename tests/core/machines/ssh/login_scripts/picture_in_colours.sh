# expect: ready
printf '\033[2J\033[H\033[?25l\033[38;5;12m       _,met$$$$$gg.\033[0m  \033[1mroot\033[0m@\033[1mgpu1\033[0m\n'
printf '\033]0;gpu1\007\033[9999999D\033[17A\r\n\033[?25h'
