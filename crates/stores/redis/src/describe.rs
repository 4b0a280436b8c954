//! What the stores of this crate promise; each sentence has a test behind it.

use clinch_core::store::Guarantees;

/// One server.
pub(crate) const ONE: (&str, Guarantees) = (
    "one Redis server, shared by many machines",
    Guarantees {
        scope: "processes that reach the server",
        exclusion: "while the server keeps its data and its clock is not set forward; with \
                    durability=strict also after a loss of data",
        token_order: "across clients, crashes, restarts, FLUSHALL and clock steps; after a \
                      loss of data, as long as the server's clock has not gone back",
        liveness: "a dead holder's lock is free after its lease and lock-delay",
        clock: "the server's wall clock",
    },
);

/// A cluster.
pub(crate) const CLUSTER: (&str, Guarantees) = (
    "a Redis cluster: names are spread over its masters",
    Guarantees {
        scope: "processes that reach every master",
        exclusion: "while slots move from server to server; over the loss of a master if the \
                    replica that takes over has what the client was told (wait=1, the default, \
                    sees to one replica, and a cluster does not see to it that this one takes \
                    over); not while a server's clock is set forward or its data are lost",
        token_order: "across clients, crashes, moved slots and the loss of a master; after a loss \
                      of data, as long as the clocks of a name's servers have not gone back",
        liveness: "a dead holder's lock is free after its lease and lock-delay; names of a lost \
                   master once a replica has taken over",
        clock: "the wall clocks of the name's master and of the replica that takes over",
    },
);
