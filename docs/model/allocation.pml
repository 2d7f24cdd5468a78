/* The life of allocations and requests under everything that can race: admission under a budget that holds one worker
 * at a time, hand-over, crashes, a client's cancel, terminate, release, eviction, shutdown, kills that are confirmed
 * late, and replay. Two models, three requests, as many incarnations as SLOTS.
 *
 * States, events, actions and every step come from supervisor/lifecycle.cc: names.pml is printed from that table by
 * tests/model/lifecycle_names. The supervisor is one thread, so each of its reactions is one atomic step here; who acts
 * next is free. tests/model/check.py checks it exhaustively with spin, and that each MUTANT fails. What holds:
 *
 *   ordering    a charge is retired once, after the process was reaped and its end settled; whoever waits for the end is
 *               answered after that (DESIGN section 3, rules 4 and 5)
 *   admission   work runs on a worker that is ready and charged; charges never exceed the budget
 *   endings     every accepted request gets exactly one terminal; nothing is left waiting (no deadlock); no run is
 *               endless (check.py asks for cycles: there is none)
 */
#include "names.pml"

#ifndef MUTANT
#define MUTANT 0
#endif

#define SLOTS 3
#define BUDGET 1     /* workers that fit at a time */
#ifndef CRASHES
#define CRASHES 2    /* of all workers together; a spawn that fails counts as one */
#endif
#define ATTEMPTS 2   /* deaths after which a request is given up */
#define NONE 7

#define MODEL_OF(r) (r == 2)

typedef Allocation {
  byte state;
  bit used;        /* this incarnation has begun */
  bit model;
  bit alive;       /* the kernel's view: it runs */
  bit exists;      /* launched and not reaped */
  bit signalled;   /* SIGKILL is on its way */
  bit charged;
  bit reaped;
  bit settled;
  bit draining;    /* no new request is routed to it */
  bit confirmed;   /* those who wait for its end were answered */
};
typedef Request {
  byte state;
  bit submitted;
  byte on;         /* allocation that it is bound to, or NONE */
  byte deaths;
  byte terminals;
};

Allocation a[SLOTS];
Request q[3];
/* Used within one step only, so no part of the state. */
hidden byte action;   /* of the table's step just taken */
hidden byte tmp;
byte charged;         /* sum */
byte crashes = CRASHES;
bit stopping;
bit cancelled, terminated, stuck_once;
bit releasing;        /* the release of model 0 was asked for */
byte terminate_waits = NONE;  /* the allocation whose end the terminate waits for */
byte target = NONE;           /* the request that it is for */

#define READY(x) (a[x].state == S_IDLE || a[x].state == S_BUSY)
#define IN_WORKER(r) (q[r].state == R_PREFILL || q[r].state == R_DECODE || q[r].state == R_CANCELLING)
#define ENDED(r) (q[r].state == R_DONE || q[r].state == R_FAILED)
#define USES(r, x) (q[r].submitted && !ENDED(r) && q[r].on == x)
#define USERS(x) (USES(0, x) + USES(1, x) + USES(2, x))
/* The live incarnation of model m that takes requests, if there is one: none other is begun beside it. */
#define SERVES(x, m) (a[x].used && a[x].model == m && a[x].state < S_TEARDOWN && !a[x].draining)

#define STEP(s, e) (s * allocation_EVENTS + e)
#define UNSERVED(m) (!SERVES(0, m) && !SERVES(1, m) && !SERVES(2, m))

inline fire(x, what) {
  action = allocation_action[STEP(a[x].state, what)];
  a[x].state = allocation_next[STEP(a[x].state, what)]
}
inline request_step(r, what) {
  action = request_action[q[r].state * request_EVENTS + what];
  q[r].state = request_next[q[r].state * request_EVENTS + what]
}

inline terminal(r, end) {
  request_step(r, end);
  assert(action == D_end_now || action == D_end_done || action == D_end_error);
  q[r].terminals++;
  assert(q[r].terminals == 1);
  q[r].on = NONE;
  q[r].deaths = 0
}

/* Retires the charge: once, and (but for a process that never was) not before it was reaped and settled. */
inline retire(x) {
  assert(a[x].charged);
  assert(!a[x].exists);
  assert(!a[x].used || a[x].state == S_FREED || (a[x].reaped && a[x].settled));
  a[x].charged = 0;
  charged--
}

inline kill(x) {
  fire(x, E_stop);
  if
  :: action == A_kill || action == A_retry_kill || action == A_hasten -> a[x].signalled = 1;
#if MUTANT == 1
     if /* the charge goes with the signal, not with the end */
     :: a[x].charged && a[x].state == S_TEARDOWN -> a[x].charged = 0; charged--
     :: else
     fi
#endif
  :: action == A_retire -> retire(x); a[x].confirmed = 1
  :: else
  fi
}

/* A lease has ended: an unused worker is idle, or goes if it was draining or the daemon stops. */
inline after_use(x) {
  if
  :: x != NONE && USERS(x) == 0 && a[x].state == S_BUSY ->
     fire(x, E_rest);
     if
     :: a[x].draining || stopping -> kill(x)
     :: else
     fi
  :: x != NONE && USERS(x) == 0 && a[x].state == S_IDLE && (a[x].draining || stopping) -> kill(x)
  :: else
  fi
}

/* What becomes of a request whose worker died: it is replayed, or gets its one error. */
inline lost(r, x) {
  if
  :: USES(r, x) ->
     if
     :: q[r].state == R_CANCELLING ->
#if MUTANT == 4
        q[r].on = NONE /* a cancelled one is taken for ended: its client waits for ever */
#else
        terminal(r, Q_finish)
#endif
     :: else ->
        if
        :: IN_WORKER(r) -> q[r].deaths++
        :: else
        fi;
        if
        :: r == target || stopping || q[r].deaths == ATTEMPTS -> terminal(r, Q_fail)
        :: else ->
           request_step(r, Q_lost_worker);
           assert(action == D_requeue);
           q[r].on = NONE
        fi
     fi
  :: else
  fi
}

inline submit(r) {
  q[r].submitted = 1;
  q[r].state = R_QUEUED;
  q[r].on = NONE;
  if
  :: stopping -> terminal(r, Q_fail)
  :: else
  fi
}

/* Reserves an incarnation for r where the budget allows it, and binds r to it before anything else can happen. */
inline reserve(r, x) {
  a[x].used = 1;
  a[x].model = MODEL_OF(r);
  a[x].state = S_RESERVED;
  a[x].charged = 1;
  charged++;
  assert(charged <= BUDGET);
  q[r].on = x
}

inline grant(r, x) {
  assert(READY(x));
  assert(a[x].charged && a[x].exists);
  request_step(r, Q_admit);
  assert(action == D_grant);
  q[r].on = x;
  if
  :: a[x].state == S_IDLE -> fire(x, E_work)
  :: else
  fi
}

inline reap(x) {
  fire(x, E_exit);
  assert(action == A_reap);
  assert(a[x].charged); /* as long as there was a process */
  a[x].exists = 0;
  a[x].reaped = 1;
  fire(x, E_reaped);
  assert(action == A_settle)
}

inline settle(x) {
  assert(a[x].reaped && !a[x].settled);
  a[x].settled = 1;
  fire(x, E_settled);
  assert(action == A_retire);
  retire(x)
}

inline answer(x) {
  fire(x, E_retired);
  assert(action == A_answer);
  lost(0, x);
  lost(1, x);
  lost(2, x);
  a[x].signalled = 0; /* what nobody asks for any more is no difference between states */
  a[x].draining = 0;
  confirm(x)
}

/* Everybody who waits for the end of x hears of it: reaped, settled and retired by then. */
inline confirm(x) {
  assert(a[x].reaped && a[x].settled && !a[x].charged && !a[x].confirmed);
  a[x].confirmed = 1;
  if
  :: terminate_waits == x -> terminate_waits = NONE
  :: else
  fi
}

/* One request's own moves. */
#define REQUEST(r)                                                                                                  \
  :: d_step { !q[r].submitted -> submit(r) }                                                                        \
  :: d_step { q[r].submitted && q[r].state == R_ADMITTED && READY(q[r].on) && a[q[r].on].exists ->                  \
       request_step(r, Q_hand_over) }                                                              \
  :: d_step { q[r].submitted && q[r].state == R_PREFILL && a[q[r].on].alive -> request_step(r, Q_token) } \
  :: d_step { q[r].submitted && (q[r].state == R_DECODE || q[r].state == R_CANCELLING) && a[q[r].on].alive ->       \
       tmp = q[r].on; terminal(r, Q_finish); after_use(tmp) }                                                       \
  :: d_step { r == 0 && !cancelled && q[r].submitted && !ENDED(r) && q[r].state != R_CANCELLING -> cancelled = 1;   \
       if                                                                                                           \
       :: q[r].state == R_QUEUED || q[r].state == R_ADMITTED -> tmp = q[r].on; terminal(r, Q_cancel); give_up(tmp)  \
       :: else -> request_step(r, Q_cancel)                                                        \
       fi }                                                                                                         \
  :: d_step { r != 2 && !terminated && !stopping && q[r].submitted && !ENDED(r) -> terminated = 1;                  \
       if                                                                                                           \
       :: IN_WORKER(r) && a[q[r].on].state < S_REAPED -> target = r; terminate_waits = q[r].on; kill(terminate_waits); early_confirm(terminate_waits) \
       :: IN_WORKER(r) -> skip                                                                                      \
       :: else -> tmp = q[r].on; terminal(r, Q_cancel); give_up(tmp)                                                \
       fi }                                                                                                         \
  :: d_step { q[r].submitted && q[r].state == R_QUEUED && q[r].on == NONE && !stopping && used == SLOTS &&          \
       UNSERVED(MODEL_OF(r)) ->  \
       terminal(r, Q_fail) }                                                                                        \
  ADMIT(r, 0) ADMIT(r, 1) ADMIT(r, 2)                                                                   \
  :: d_step { q[r].submitted && q[r].state == R_QUEUED && q[r].on == NONE && !stopping && used < SLOTS &&           \
       charged < BUDGET && UNSERVED(MODEL_OF(r)) -> reserve(r, used); used++ }

/* A request meets a worker: its loader's lease is granted when the worker is ready, others' at once. A waiter of
 * another model makes an idle worker go. */
#ifndef ROUTES
#if MUTANT == 5
#define ROUTES(x, m) (a[x].used && a[x].model == m && a[x].charged && a[x].exists && a[x].state <= S_TEARDOWN && a[x].state > S_LOADING)
#else
#define ROUTES(x, m) (SERVES(x, m) && READY(x))
#endif
#endif
#define ADMIT(r, x)                                                                                                 \
  :: d_step { q[r].submitted && q[r].state == R_QUEUED && (q[r].on == NONE || q[r].on == x) && !stopping &&         \
       ROUTES(x, MODEL_OF(r)) -> grant(r, x) }                                                                      \
  :: d_step { q[r].submitted && q[r].state == R_QUEUED && q[r].on == NONE && !stopping && charged == BUDGET &&      \
       used < SLOTS && a[x].used && a[x].model != MODEL_OF(r) && a[x].state == S_IDLE && USERS(x) == 0 -> kill(x) }

/* A reservation that nobody wants any more, or a lease that was given back. */
inline give_up(x) {
  if
  :: x != NONE && a[x].state == S_RESERVED && USERS(x) == 0 ->
     fire(x, E_given_up);
     assert(action == A_retire);
     retire(x);
     a[x].confirmed = 1
  :: else -> after_use(x)
  fi
}

inline early_confirm(x) {
#if MUTANT == 2
  confirm(x) /* the answer comes with the signal */
#else
  skip
#endif
}

/* One worker's moves, the kernel's for it, and what the supervisor makes of its end. */
#define WORKER(x)                                                                                                   \
  :: d_step { a[x].used && a[x].state == S_RESERVED && !a[x].confirmed -> fire(x, E_spawned); assert(action == A_await_hello); \
       a[x].exists = 1; a[x].alive = 1;                                                                             \
       if :: USERS(x) == 0 -> kill(x) :: else fi }                                                                  \
  :: d_step { a[x].used && a[x].state == S_RESERVED && !a[x].confirmed && crashes > 0 -> crashes--;                 \
       fire(x, E_spawn_failed); assert(action == A_retire); retire(x); a[x].confirmed = 1;                          \
       unspawned(0, x); unspawned(1, x); unspawned(2, x) }                                                          \
  :: d_step { a[x].alive && a[x].state == S_STARTING -> fire(x, E_hello) }                                          \
  :: d_step { a[x].alive && a[x].state == S_LOADING -> fire(x, E_ready);                                            \
       if :: USERS(x) == 0 && (a[x].draining || stopping) -> kill(x) :: else fi }                                   \
  :: d_step { a[x].alive && crashes > 0 -> crashes--; a[x].alive = 0 }                                              \
  :: d_step { a[x].alive && a[x].signalled -> a[x].alive = 0 }                                                      \
  :: d_step { a[x].exists && a[x].signalled && !stuck_once && (a[x].state == S_TEARDOWN) ->                         \
       stuck_once = 1; fire(x, E_unconfirmed); assert(action == A_retry_kill);                       \
       unconfirmed(x) }                                                                                             \
  :: d_step { a[x].exists && !a[x].alive -> reap(x) }                                                               \
  :: d_step { a[x].state == S_REAPED -> settle(x) }                                                                 \
  :: d_step { a[x].state == S_SETTLED -> answer(x) }                                                                \
  :: d_step { a[x].used && a[x].draining && a[x].state < S_TEARDOWN && USERS(x) > 0 ->                              \
       drained(0, x); drained(1, x); drained(2, x);                                                                 \
       if :: a[x].state < S_TEARDOWN -> kill(x) :: else fi }

inline unspawned(r, x) {
  if
  :: USES(r, x) -> terminal(r, Q_fail)
  :: else
  fi
}

/* Said once to those who wait; the charge stays, and the end is still waited for. */
inline unconfirmed(x) {
#if MUTANT == 3
  if /* given up for lost: the charge is retired now, and again when it ends after all */
  :: a[x].charged -> a[x].charged = 0; charged--
  :: else
  fi
#endif
  if
  :: terminate_waits == x -> terminate_waits = NONE
  :: else
  fi
}

/* The drain's deadline: what waits ends, what runs is cancelled and goes with the worker. */
inline drained(r, x) {
  if
  :: USES(r, x) && (q[r].state == R_QUEUED || q[r].state == R_ADMITTED) -> terminal(r, Q_fail)
  :: USES(r, x) && (q[r].state == R_PREFILL || q[r].state == R_DECODE) -> request_step(r, Q_cancel)
  :: else
  fi
}

inline end_on_purpose(x) {
  if
  :: a[x].used && a[x].state < S_TEARDOWN ->
     a[x].draining = 1;
     if
     :: USERS(x) > 0 && a[x].state != S_RESERVED -> fire(x, E_drain)
     :: else ->
        drained(0, x);
        drained(1, x);
        drained(2, x);
        kill(x)
     fi
  :: else
  fi
}

inline stop_waiting(r) {
  if
  :: q[r].submitted && q[r].state == R_QUEUED -> terminal(r, Q_fail)
  :: q[r].submitted && q[r].state == R_ADMITTED -> terminal(r, Q_fail)
  :: else
  fi
}

inline shut_down() {
  stopping = 1;
#if MUTANT != 6
  stop_waiting(0); /* without these those who wait are never answered */
  stop_waiting(1);
  stop_waiting(2);
#endif
  end_on_purpose(0);
  end_on_purpose(1);
  end_on_purpose(2)
}

#define SETTLED(x) (!a[x].used || (a[x].state == S_FREED && !a[x].charged) || (a[x].state == S_IDLE && !stopping && !a[x].draining))
#define ANSWERED(r) (q[r].submitted && q[r].terminals == 1)

active proctype everything() {
  byte used = 0;
  atomic { load_allocation(); load_request() }
  do
  REQUEST(0)
  REQUEST(1)
  REQUEST(2)
  WORKER(0)
  WORKER(1)
  WORKER(2)
  :: d_step { !releasing -> releasing = 1;
       if :: a[0].model == 0 -> end_on_purpose(0) :: else fi;
       if :: a[1].model == 0 -> end_on_purpose(1) :: else fi;
       if :: a[2].model == 0 -> end_on_purpose(2) :: else fi }
  :: d_step { !stopping -> shut_down() }
  :: d_step { ANSWERED(0) && ANSWERED(1) && ANSWERED(2) && SETTLED(0) && SETTLED(1) && SETTLED(2) &&
       terminate_waits == NONE -> skip } -> break
  od;
  assert(!stopping || charged == 0)
}
