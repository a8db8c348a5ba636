# expect: login floods
yes "please renew your password"
