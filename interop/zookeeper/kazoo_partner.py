"""Takes locks with kazoo as the lines on standard input say; each gets one line in reply."""

import sys

from kazoo.client import KazooClient

client = KazooClient(hosts=f"127.0.0.1:{sys.argv[1]}", timeout=4)
client.start()
locks = {}
print("ready", flush=True)
for line in sys.stdin:
    word, path = line.split()[:2]
    lock = locks.setdefault(path, client.Lock(path, "kazoo"))
    if word == "lock":
        print("yes" if lock.acquire() else "no", flush=True)
    elif word == "unlock":
        lock.release()
        print("yes", flush=True)
    else:
        print("what?", flush=True)
client.stop()
