"""Locks with redis-py; see ../README.md."""

import sys

import redis
from redis.exceptions import LockError

client = redis.Redis(host=sys.argv[1], port=int(sys.argv[2]))
lock = None


def obey(order, *words):
    global lock
    if order in ("try", "wait"):
        name, ttl = words
        timeout = None if ttl == "-" else int(ttl) / 1000
        lock = client.lock(name, timeout=timeout, thread_local=False)
        return "held" if lock.acquire(blocking=order == "wait") else "refused"
    try:
        if order == "extend":
            lock.extend(int(words[0]) / 1000, replace_ttl=True)
            return "extended"
        if order == "release":
            lock.release()
            return "released"
    except LockError:
        return "not held"
    raise ValueError(order)


for line in sys.stdin:
    print(obey(*line.split()), flush=True)
