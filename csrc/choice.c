/* choice.c - runs a plan serially or in parallel, whichever is faster on this machine.
 *
 * The estimated costs of a plan decide whether several threads could pay. Whether they do also
 * depends on the quality of the estimates, on whether workers are awake, and on other processes
 * that use the cores. So executions are timed. While a plan runs in parallel ("shared"), the gains
 * are added up, and occasional serial trials measure the time of one thread. When sharing has lost
 * time, it rests (runs serially) for a while. Results do not depend on the choice. */
#include "graph.h"

static krt_thread_costs costs;
static bool costs_are_set;

void krt_set_thread_costs(krt_thread_costs now)
{
    costs = now;
    costs_are_set = true;
}

void krt_default_thread_costs(krt_thread_costs now)
{
    if (!costs_are_set)
        krt_set_thread_costs(now);
}

/* Half of the least work for which it pays to pass a single chunk to another thread. */
int64_t krt_claim_cost_ns(void) { return costs.chunk_ns / 2; }

/* Maximum spinning time. A thread without work in a stage spins for the time of two of the largest
 * claims, at least for the time of waking a thread, and then sleeps. The maximum is too short to
 * matter for power consumption. */
#define MOST_SPIN_NS 2000000

/* Sharing must save 1 / LEAST_GAIN of the serial time; less does not justify more threads. */
#define LEAST_GAIN 16

/* If shared executions take about as long as serial ones, they may go on for this time before they
 * count as the loss of one serial execution. The reason is that a host may run two cores of a
 * virtual machine on one physical core, and separates them only if both stay busy for some time:
 * 10 to 60 ms, measured with a product of 128 x 784 x 128 that ran for seconds. */
#define PATIENCE_NS 20000000

/* Gains are kept, up to the time of MOST_KEPT serial executions, and offset later losses. So a
 * single delay of a worker does not end sharing that has gained time, but a lasting delay soon
 * does. */
#define MOST_KEPT 8

/* Number of serial executions in a trial, and of executions between trials. The first serial
 * execution finds its data in the caches of two cores, which long executions do not notice.
 * Intervals between trials grow, so that trials are one in twenty of the first hundred
 * executions. */
enum { TRIAL = 2, LONG_TRIAL = 1, LEAST_BETWEEN_TRIALS = 4, MORE = 4, MOST_BETWEEN_TRIALS = 512 };
#define LONG_NS 1000000

/* Length of a rest: the number of serial executions before the plan is shared again. At first these
 * are as many as take the time that sharing has lost; each time that sharing loses again, they are
 * twice as many. So a single delay is soon forgotten, and repeated failures cost almost nothing in
 * the end. If little was lost, REST_NS and MOST_RESTS limit the rest, so that sharing resumes soon
 * after other processes have ended. */
enum { LEAST_RESTS = 8, MOST_LONG_RESTS = 16, MOST_RESTS = 512, MOST_DOUBLINGS = 6 };
#define REST_NS 100000000

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t greatest(int64_t a, int64_t b) { return a > b ? a : b; }

/* ---- The estimate ------------------------------------------------------------------------ */

/* The time of work of `cost` if `threads` threads share its chunks. */
static int64_t shared_cost(int64_t cost, int64_t chunks, int threads)
{
    if (chunks < 2 || cost < krt_claim_cost_ns())
        return cost;
    int64_t rounds = (chunks + threads - 1) / threads;
    return (int64_t)((double)cost * (double)rounds / (double)chunks);
}

/* The number of threads that each get enough of the work. */
static double worth_threads(double work) { return work / ((double)costs.part_ns + 1); }

bool krt_choice_has_work(const krt_plan *plan) { return worth_threads((double)plan->cost_ns) >= 2; }

/* The number of threads, up to `threads`, that pay for a stage; 1 if it gains nothing. */
static int useful_threads(double work, double span, double n_ops, int threads)
{
    double busy = work / span + 1, worth = worth_threads(work);
    if (worth < 2 || threads < 2)
        return 1;
    if (busy < threads)
        threads = (int)busy;
    if (worth < threads)
        threads = (int)worth;
    double hand_over = (double)costs.hand_over_ns * n_ops / threads;
    double shared = (span > work / threads ? span : work / threads) + hand_over;
    return shared < 0.85 * work ? threads : 1;
}

/* The time that threads without work spin if the largest claim takes `claim_ns`. */
static int64_t spin_for(int64_t claim_ns)
{
    if (claim_ns > MOST_SPIN_NS / 2)
        return MOST_SPIN_NS;
    return greatest(2 * claim_ns, costs.wake_ns);
}

/* Estimate work and span of a stage, and from them its number of threads. */
static void estimate(krt_plan *plan, krt_stage *at, int threads)
{
    krt_graph *graph = plan->graph;
    double work = 0, span = 0, n_tasks = 0;
    int64_t claim = 0;
    for (uint32_t op = at->begin; op < at->end; ++op) {
        const krt_record *record = plan->records + op;
        int64_t start = 0;
        for (size_t i = 0; i < record->n_deps; ++i) {
            size_t dep = plan->deps[record->deps + i];
            if (dep >= at->begin && graph->finish_ns[dep] > start)
                start = graph->finish_ns[dep];
        }
        const krt_task *task = graph->tasks + op;
        int64_t cost = krt_unit_cost(plan, op);
        n_tasks += !krt_follows(record);
        int64_t shared = shared_cost(cost, task->chunks, threads);
        graph->finish_ns[op] = start > INT64_MAX - shared ? INT64_MAX : start + shared;
        work += (double)cost;
        int64_t chunk = cost / task->chunks;
        claim = chunk > claim / task->grain ? chunk * task->grain : claim;
        span = (double)graph->finish_ns[op] > span ? (double)graph->finish_ns[op] : span;
    }
    at->work_ns = work < 9e18 ? (int64_t)work : INT64_MAX;
    at->spin_ns = spin_for(claim);
    at->threads = at->alone ? 1 : useful_threads(work, span, n_tasks, threads);
}

static void estimate_all(krt_plan *plan, int threads)
{
    krt_graph *graph = plan->graph;
    krt_choice choice = {.made_for = threads, .fresh = true};
    for (krt_stage *at = graph->stages; at != graph->stages + graph->n_stages; ++at) {
        estimate(plan, at, threads);
        choice.open |= at->threads > 1;
        choice.parallel |= at->threads > 1 && at->work_ns >= costs.wake_ns;
    }
    choice.sharing = choice.parallel;
    choice.interval = LEAST_BETWEEN_TRIALS;
    choice.left = choice.sharing ? choice.interval : LEAST_RESTS;
    graph->choice = choice;
}

/* ---- The choice -------------------------------------------------------------------------- */

#ifdef KRT_TEST_HOOKS
static _Atomic bool always_parallel;
void krt_test_always_parallel(bool always) { always_parallel = always; }
#endif

bool krt_choice_is_open(krt_plan *plan, int threads)
{
    if (plan->graph->choice.made_for != threads)
        estimate_all(plan, threads);
    return plan->graph->choice.open;
}

bool krt_choose_parallel(krt_plan *plan)
{
#ifdef KRT_TEST_HOOKS
    if (always_parallel)
        return true;
#endif
    return plan->graph->choice.parallel;
}

/* Update the estimate of the plan's serial time without interruptions: a shorter time counts at
 * once, a longer one slowly. */
static void learn_serial(krt_choice *choice, int64_t elapsed_ns)
{
    int64_t known = choice->serial_ns;
    if (!known || elapsed_ns < known)
        choice->serial_ns = greatest(elapsed_ns, 1);
    else
        choice->serial_ns += (least(elapsed_ns, 2 * known) - known) / 8;
}

/* Stop sharing for a while. */
static void rest(krt_choice *choice)
{
    int64_t serial = choice->serial_ns, lost = -choice->gained_ns;
    int64_t most = greatest(MOST_LONG_RESTS, least(REST_NS / serial, MOST_RESTS));
    choice->losses = lost < 0 ? 0 : (int)least(choice->losses + 1, MOST_DOUBLINGS);
    choice->left = least(LEAST_RESTS << choice->losses, most);
    if (choice->losses)
        choice->left = greatest(choice->left, lost / serial << (choice->losses - 1));
    choice->parallel = false;
    choice->sharing = false;
}

/* The gain of sharing in one execution, without interruptions of the caller. The caller's waiting
 * time counts in full, because it includes interruptions of workers. */
static int64_t gain_of(const krt_choice *choice, const krt_trace *trace)
{
    int64_t serial = choice->serial_ns, own = trace->elapsed_ns - trace->waited_ns;
    if (trace->helped)
        return serial - serial / LEAST_GAIN - trace->waited_ns - least(own, 2 * serial);
    /* No worker helped, so the only cost is the call to wake them, which few plans notice. */
    int64_t lost = least(trace->elapsed_ns - serial, serial / 4);
    return lost > serial / (2 * LEAST_GAIN) ? -lost : 0;
}

/* The gain as it counts for kept_ns: a loss near break-even is limited; see PATIENCE_NS. */
static int64_t weighed(int64_t gain, int64_t serial)
{
    bool even = gain < 0 && gain >= -2 * (serial / LEAST_GAIN);
    if (!even || serial >= PATIENCE_NS)
        return gain;
    return greatest(gain, -1 - (int64_t)((double)serial * (double)serial / PATIENCE_NS));
}

static void learn_shared(krt_choice *choice, const krt_trace *trace)
{
    int64_t serial = choice->serial_ns;
    if (serial) {
        int64_t gain = gain_of(choice, trace);
        choice->gained_ns += gain;
        choice->kept_ns = least(choice->kept_ns + weighed(gain, serial), MOST_KEPT * serial);
        if (choice->kept_ns < -serial) {
            rest(choice);
            return;
        }
    }
    if (--choice->left > 0)
        return;
    choice->parallel = false; /* measure one thread */
    choice->left = trace->elapsed_ns < LONG_NS ? TRIAL : LONG_TRIAL;
}

/* Resume sharing after a rest or a trial. */
static void share_again(krt_choice *choice)
{
    choice->interval = choice->sharing ? least(MORE * choice->interval, MOST_BETWEEN_TRIALS)
                                       : LEAST_BETWEEN_TRIALS;
    if (!choice->sharing)
        choice->kept_ns = choice->gained_ns = 0;
    choice->parallel = true;
    choice->sharing = true;
    choice->fresh = true;
    choice->left = choice->interval;
}

void krt_choice_learn(krt_plan *plan, const krt_trace *trace)
{
    krt_choice *choice = &plan->graph->choice;
    if (choice->fresh) {
        choice->fresh = false; /* threads start or wake, caches are cold */
    } else if (choice->parallel) {
        learn_shared(choice, trace);
    } else {
        learn_serial(choice, trace->elapsed_ns);
        if (--choice->left <= 0)
            share_again(choice);
    }
}
