//! The examples and notes below each command's options.

pub(super) const CLINCH: &str = "\
Examples:
  clinch run backup -- ./backup.sh          one backup at a time on this machine
  clinch run --no-wait report -- make       give up when another one runs (status 75)
  clinch list                               who holds, who waits
  CLINCH_STORE=sqlite:/srv/locks.db clinch show backup

Durations carry a unit: 500ms, 30s, 5m, 2h, 1h30m.

Exit status: 0 done; 1 the answer is no (check, evict, doctor); 2 wrong usage; 69 the store cannot
be used; 74 standard output cannot be written; 75 not acquired in time; 76 lost while held.";

pub(super) const RUN: &str = "\
Examples:
  clinch run nightly -- ./nightly.sh               wait for the lock, for as long as it takes
  clinch run --wait 5m deploy/web -- ./deploy      wait five minutes at most
  clinch run --shared data -- ./read               with other readers; writers say --exclusive
  clinch run --permits 1/4 gpu -- ./train          one of four at a time
  clinch run job -- sh -c 'psql -v token=$CLINCH_TOKEN -f job.sql'

The command finds CLINCH_NAME, CLINCH_TOKEN (the fencing token), CLINCH_SEQUENCER, CLINCH_STORE
(without its password) and CLINCH_NAMESPACE in its environment. It runs in its own process group;
signals are passed on to that. Nothing that it has started outlives the lock: when the lock is lost,
all of it gets TERM and then, before the lease ends, KILL; when clinch is killed, it is killed; and
what is left in the background when the command ends is ended, unless --leave-background is given.

Exit status: the command's own; 128+n when signal n ended it; 75 not acquired in time; 76 lost while
it ran; 69 the store cannot be used; 126 and 127 as in a shell; 2 wrong usage.";

pub(super) const HOLD: &str = "\
Examples:
  clinch hold maintenance                          until Ctrl-C
  clinch hold --for 10m maintenance &              ten minutes at most; `kill %1` ends it sooner
  coproc clinch hold --stdin step                  until the script closes its input, or dies

It prints one line once the lock is held: `held NAME token TOKEN sequencer SEQUENCER`.

Exit status: 0 released; 75 not acquired in time; 76 lost; 69 the store cannot be used, or has not
confirmed the release; 130 interrupted while it waited.";

pub(super) const ELECT: &str = "\
Examples:
  clinch elect scheduler -- ./scheduler            run it on one machine, move it when that one dies
  clinch elect --value http://$HOST:8080 api -- ./api
  clinch elect scheduler --observe --json          follow who leads

When leadership is lost the command is stopped, as by `run`, and a new campaign begins. When the
command ends by itself, clinch resigns and ends with its status. While the store cannot be reached,
it goes on campaigning, for ever or for --patience.

Exit status: the command's own; 76 leadership lost (--once); 75 not elected in time (--wait); 69 the
store cannot be used (at the start, or for longer than --patience).";

pub(super) const LIST: &str = "\
Examples:
  clinch list
  clinch list deploy/
  clinch list --json | jq -r '.[] | select(.waiters != []) | .name'

A free lock that nobody waits for is not listed; one in its lock-delay is.";

pub(super) const SHOW: &str = "\
Examples:
  clinch show deploy/web
  clinch show --json deploy/web | jq '.holders[].host'

Exit status: 0, also when the lock is free.";

pub(super) const WATCH: &str = "\
Examples:
  clinch watch
  clinch watch deploy/ --json
  clinch watch --for 1m --count 10

Events: queued, granted, released, expired, evicted, withdrawn, published.

Exit status: 0, also after Ctrl-C.";

pub(super) const CHECK: &str = "\
Examples:
  clinch check \"$CLINCH_SEQUENCER\" && ./write-the-result

It asks the store. A resource that can compare tokens by itself should do so in the same step as the
write: see the fencing chapter of the documentation.

Exit status: 0 current; 1 stale.";

pub(super) const EVICT: &str = "\
Examples:
  clinch evict deploy/web                          asks first
  clinch evict deploy/web --token 28672 --yes      only if that hold is still there

Only what was found at first is broken, by its token: a holder that comes later is not touched. The
holder learns that it has lost the lock. Its lock-delay, if it has one, applies; where nobody holds
the lock, `evict` ends a lock-delay that runs.

Exit status: 0 done; 1 nobody held it, or not any more.";

pub(super) const STORES: &str = "\
Examples:
  clinch stores
  clinch stores --json | jq '.[].guarantees'";

pub(super) const DOCTOR: &str = "\
Examples:
  clinch doctor
  clinch doctor --store sqlite:/srv/locks.db --json
  clinch doctor --store mysql://db/app --print-schema | mysql app

Exit status: 0 all promises hold (warnings may remain); 1 a promise is broken.";

#[cfg(feature = "bench")]
pub(super) const BENCH: &str = "\
Examples:
  clinch bench
  clinch bench --store sqlite:/srv/locks.db --seconds 3
  clinch bench --only uncontended,handover --json

Every name lies under a random prefix below clinch-bench/, and nothing of it stays in the store.
Read ratios, not absolutes: the floor and the lock are measured side by side. `ops` are operations at
the engine per acquisition. The aims are for information; a missed one is no failure.

Exit status: 0 measured; 130 interrupted (what was complete is printed).";

#[cfg(feature = "verify")]
pub(super) const VERIFY: &str = "\
Examples:
  clinch verify --store redis://127.0.0.1 --minutes 5 --report verify.html
  clinch verify --seconds 20 --workload hot,fair --seed 7 --history run.jsonl
  clinch verify --replay run.jsonl                 check the same history again
  clinch verify --lab redis                        a server of its own, killed and paused as well
  clinch verify --wrong setnx-expire               a lock from a tutorial, and how it is caught

It kills and pauses its own processes and cuts their connections; of the store it uses names below
clinch-verify/ only, and evicts its own holds only. It is not gentle: mind a store that others use.
A seed gives the same faults at the same times, not the same order of what clients do.

Workloads: hot, many, reentrant, fair, read-write, semaphore, multi, election, fenced, unfenced, long,
storm. All that the store can do, unless said.

Exit status: 0 no violation; 1 a promise was broken; 130 interrupted without a violation (what there
was is reported).";
