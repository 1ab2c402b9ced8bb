#!/bin/sh
# Locks as one does by hand, with redis-cli alone; see ../README.md.
ask() { redis-cli -h "$host" -p "$port" "$@"; }
host=$1 port=$2 name='' number=0
while read -r order first second; do
  case $order in
    try | wait)
      name=$first number=$((number + 1)) value="$(uname -n) $$ $number"
      while [ "$(ask SET "$name" "$value" NX PX "$second")" != OK ]; do
        [ "$order" = try ] && break
        sleep 0.05
      done
      if [ "$(ask GET "$name")" = "$value" ]; then echo held; else echo refused; fi ;;
    extend)
      script="if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0"
      if [ "$(ask EVAL "$script" 1 "$name" "$value" "$first")" = 1 ]; then echo extended; else echo not held; fi ;;
    release)
      script="if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"
      if [ "$(ask EVAL "$script" 1 "$name" "$value")" = 1 ]; then echo released; else echo not held; fi ;;
  esac
done
