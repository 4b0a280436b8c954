"""Takes locks with `etcdctl lock` as the lines on standard input say; each gets one line in reply.

Started with the address of the server.
"""

import signal
import subprocess
import sys
import threading

ENDPOINT = sys.argv[1]
HELD = {}


def start(name, lease, *command):
    seconds = max(1, int(lease) // 1000)
    argv = ["etcdctl", f"--endpoints={ENDPOINT}", "lock", f"--ttl={seconds}", "--", name, *command]
    # It dies with us.
    guarded = ["setpriv", "--pdeathsig", "KILL", *argv]
    return subprocess.Popen(guarded, stdout=subprocess.PIPE, stderr=sys.stderr, text=True)


def lock(name, lease):
    process = start(name, lease)
    # It prints the key when it holds.
    if not process.stdout.readline().strip():
        return False
    HELD[name] = process
    return True


def try_lock(name, lease):
    """etcdctl cannot try: it gives up after a moment, and leaves the queue."""
    process = start(name, lease)
    timer = threading.Timer(1.0, process.send_signal, [signal.SIGINT])
    timer.start()
    got = bool(process.stdout.readline().strip())
    timer.cancel()
    if got:
        HELD[name] = process
    else:
        process.wait()
    return got


def unlock(name):
    process = HELD.pop(name)
    process.send_signal(signal.SIGINT)
    process.wait()
    return True


def count(name, lease, file, threads, times):
    """Adds to the number in a file: wrong unless the lock excludes."""
    add = f'read n <"{file}"; echo $((n + 1)) >"{file}"'

    def work():
        for _ in range(int(times)):
            process = start(name, lease, "sh", "-c", add)
            process.stdout.read()
            assert process.wait() == 0

    workers = [threading.Thread(target=work) for _ in range(int(threads))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return True


def main():
    print("ready", flush=True)
    for line in sys.stdin:
        verb, *words = line.split()
        done = {"lock": lock, "try": try_lock, "unlock": unlock, "count": count}[verb](*words)
        print("yes" if done else "no", flush=True)


main()
