"""Takes locks with redis-py as the lines on standard input say; each gets one line in reply."""

import pathlib
import sys
import threading

import redis


def count(client, name, lease, file, threads, times):
    """Adds to the number in a file: wrong unless the lock excludes."""

    def work():
        for _ in range(times):
            with client.lock(name, timeout=lease):
                number = int(file.read_text())
                file.write_text(f"{number + 1}\n")

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def main():
    client = redis.Redis(port=int(sys.argv[1]))
    held = {}
    print("ready", flush=True)
    for line in sys.stdin:
        verb, name, *rest = line.split()
        # Without a lease the key has no TTL: held for ever.
        lease = int(rest[0]) / 1000 if rest and int(rest[0]) > 0 else None
        if verb in ("try", "lock"):
            lock = client.lock(name, timeout=lease)
            taken = lock.acquire(blocking=verb == "lock")
            if taken:
                held[name] = lock
            reply = "yes" if taken else "no"
        elif verb == "unlock":
            held.pop(name).release()
            reply = "yes"
        elif verb == "count":
            count(client, name, lease, pathlib.Path(rest[1]), int(rest[2]), int(rest[3]))
            reply = "yes"
        else:
            reply = "what?"
        print(reply, flush=True)


main()
