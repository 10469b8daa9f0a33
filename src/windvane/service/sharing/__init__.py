"""Several servers, one log: each folds the same lessons in the same order to the same bits.

**A lesson** is a reward that counts. A loop decides; later a reward comes, or the wait for it ends.
The writer process matches the two and writes a lesson in the same transaction: the features of the
chosen action, the reward, the round and the time of the decision. Lessons have ascending ids, and
what a loop believes is a fold over them,

    belief(n) = learn(belief(n - 1), lesson n),    belief(0) = nothing but the settings.

A change of settings is an entry of the same sequence: it names the last lesson before it. Nothing
else changes a belief, and a lesson is learned by arithmetic in a written order. So the belief after
lesson n has the same bits wherever the log is folded: on every server, after a crash, from a
snapshot or from the first lesson. Servers do not send each other beliefs, and need not agree on
anything but the order of the log.

**A lesson names what came before it.** A server hears of its own writes at once, with the
acknowledgement of the commit, and of those of others a little later:

    the log        ... 16    17 (previous 16)    18 (previous 17)
    server A       wrote 16 and 18; 18 comes back first, because 17 is B's
    server B       wrote 17

Ids have gaps, so that 18 after 16 proves nothing. Therefore the writer adds to each lesson the id
of the lesson before it in the loop (`previous`) and that of the last change of settings (`change`).
It can, because a commit first locks the positions of its loops. The rule of a fold is: skip what
was applied; apply what names the last thing that was applied; otherwise read the log from there
first. A sees that 18 names 17, reads 17 and 18 from the log, and learns both in order (`fold.py`).

**Decisions need no agreement.** The random numbers of a decision follow from the seed and its
round, so two decisions must never share a round. A server takes blocks of rounds from the log, 16
at first and up to 1024, and asks for the next block before the present one is used up
(`servers.py`). It decides by the belief that it has, which may lack the lessons of the last
milliseconds. The log keeps the probabilities of each decision, so estimates and evaluations are
exact whatever the belief was. If two servers get the same event id, the database says who was
first, and both give that answer.

**Catching up.** After a commit, the writer notifies the other servers how far the loop has got
(PostgreSQL's NOTIFY), and they read what they lack. Notifications may be lost, so every server also
reads the positions of all loops twice a second (`loops/maintenance.py`). New loops and changes of
settings arrive in the same two ways. A loop without a position was deleted: a commit writes nothing
to it, and every server forgets it.

**The leader.** Some work is done once for all: closing decisions whose wait is over, storing
snapshots, deleting old decisions, evaluating. A lease in the log says who does it. Every server
sends a heartbeat each 1.5 seconds; a heartbeat takes or renews the lease, for 6 seconds by the
clock of the database. The holder counts these seconds from before it sent the heartbeat, by a
clock that nobody sets, so that it stops before another one can begin (`servers.py`). A heartbeat
also says until when a server has settled its degraded answers. The wait of a decision is over when
it is over by this time of every server: no default reward is learned of a decision that a server is
about to withdraw, or that waits by the clock of a slower one.

**One clock.** Service time follows the clock of the database, which comes with every heartbeat. The
clocks of the machines may be wrong; `/healthz` says by how much.

**Settings in force** are those of the last change that a server has read, at once and for good. An
operation that follows from settings names their change, and the writer compares it with the last
one in the log: a reward is matched by the settings of the log, and an old wait, retention or set of
settings is refused.

**When a server dies**, what it acknowledged is in the log. Its clients go to another server, which
may take rewards for any decision. Its lease ends after 6 seconds, its heartbeat counts no longer
after 10, and the rounds that it had taken stay unused. When it starts again, it first withdraws
what its file on disk says, then loads a snapshot and folds the rest. When the database does not
answer, servers give degraded answers; a write whose acknowledgement was lost may be in the log, so
the loop reads the log again before it learns anything else (`must_restore`).

**Snapshots** only save time. The leader stores the belief after a lesson, about every thousand
lessons, with a checksum (`fold.py`). A start loads the newest one that is not damaged and
learns the later lessons; an older one, or none, leads to the same bits. Before lessons are deleted,
two snapshots are stored that contain them, and the log remembers the last deleted lesson: a server
that lacks it loads a snapshot instead.

A single server, on SQLite or PostgreSQL, is the same fold without heartbeats and blocks of rounds.
`faults/shared_log.py` kills servers, writers and connections under traffic and compares the bits.
"""
