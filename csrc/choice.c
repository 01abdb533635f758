/* choice.c - serial or parallel, whichever is quicker for this plan on this machine.
 *
 * Costs estimated by whoever made the plan say whether several threads could pay. Whether they
 * do depends on more: how good the estimates are, whether workers are awake when the plan comes,
 * whether other processes want the cores. So executions are timed, and now and then a few go the
 * other way; results do not depend on it. */
#include "graph.h"

/* Below this estimate a stage is not worth a region. */
#define STAGE_COST_NS 15000

/* What a thread should have to do, or it is left asleep. */
#define THREAD_COST_NS 7500

/* Waking a worker takes a system call and its time to arrive; the first choice allows for it. */
#define WAKE_COST_NS 200000

/* What passing one op from thread to thread costs. */
#define OP_COST_NS 300

/* Executions before the first trial, between trials, and of a trial. The first of a trial may
 * have to wake workers that the others find awake. */
enum { BEFORE_FIRST_TRIAL = 8, BETWEEN_TRIALS = 512, TRIAL = 3 };

/* ---- The estimate ------------------------------------------------------------------------ */

/* The time of an op when `threads` threads share its chunks. */
static int64_t shared_cost(const krt_record *record, int threads)
{
    int64_t cost = krt_record_cost(record), chunks = (int64_t)record->chunks;
    if (chunks < 2 || cost < KRT_CLAIM_COST_NS)
        return cost;
    int64_t rounds = (chunks + threads - 1) / threads;
    return (int64_t)((double)cost * (double)rounds / (double)chunks);
}

/* How many of `threads` threads a stage of so much work can keep busy, if it gains by them. */
static int useful_threads(double work, double span, double n_ops, int threads)
{
    double busy = work / span + 1, worth = work / THREAD_COST_NS;
    if (work < STAGE_COST_NS || threads < 2)
        return 1;
    if (busy < threads)
        threads = (int)busy;
    if (worth < threads)
        threads = worth < 2 ? 2 : (int)worth;
    double shared = (span > work / threads ? span : work / threads) + OP_COST_NS * n_ops / threads;
    return shared < 0.85 * work ? threads : 1;
}

/* Work and span of a stage, and from them the threads it runs on. */
static void estimate(krt_plan *plan, krt_stage *at, int threads)
{
    krt_graph *graph = plan->graph;
    double work = 0, span = 0;
    for (uint32_t op = at->begin; op < at->end; ++op) {
        const krt_record *record = plan->records + op;
        int64_t start = 0;
        for (size_t i = 0; i < record->n_deps; ++i) {
            size_t dep = plan->deps[record->deps + i];
            if (dep >= at->begin && graph->finish_ns[dep] > start)
                start = graph->finish_ns[dep];
        }
        int64_t shared = shared_cost(record, threads);
        graph->finish_ns[op] = start > INT64_MAX - shared ? INT64_MAX : start + shared;
        work += (double)krt_record_cost(record);
        span = (double)graph->finish_ns[op] > span ? (double)graph->finish_ns[op] : span;
    }
    at->work_ns = work < 9e18 ? (int64_t)work : INT64_MAX;
    at->threads = at->alone ? 1 : useful_threads(work, span, at->end - at->begin, threads);
}

static void estimate_all(krt_plan *plan, int threads)
{
    krt_graph *graph = plan->graph;
    krt_choice choice = {.made_for = threads, .left = BEFORE_FIRST_TRIAL};
    for (krt_stage *at = graph->stages; at != graph->stages + graph->n_stages; ++at) {
        estimate(plan, at, threads);
        choice.open |= at->threads > 1;
        choice.parallel |= at->threads > 1 && at->work_ns >= WAKE_COST_NS;
    }
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
    return plan->graph->choice.parallel != plan->graph->choice.trying;
}

/* An average that follows quickly and that one interruption by the system does not throw. */
static int64_t follow(int64_t average, int64_t sample)
{
    if (!average)
        return sample;
    if (sample > 4 * average)
        sample = 4 * average;
    return average + (sample - average) / 8;
}

void krt_choice_learn(krt_plan *plan, int64_t elapsed_ns)
{
    krt_choice *choice = &plan->graph->choice;
    if (!choice->trying)
        choice->preferred_ns = follow(choice->preferred_ns, elapsed_ns);
    else if (!choice->other_ns || elapsed_ns < choice->other_ns)
        choice->other_ns = elapsed_ns;
    /* Circumstances have changed: do not wait for the next trial. */
    if (!choice->trying && choice->settled_ns &&
        choice->preferred_ns - choice->settled_ns > choice->settled_ns / 4)
        choice->left = 1;
    if (--choice->left > 0)
        return;
    if (choice->trying && choice->other_ns < choice->preferred_ns - choice->preferred_ns / 16) {
        choice->parallel = !choice->parallel;
        choice->preferred_ns = choice->other_ns;
    }
    choice->settled_ns = choice->trying ? choice->preferred_ns : 0;
    choice->other_ns = 0;
    choice->trying = !choice->trying;
    choice->left = choice->trying ? TRIAL : BETWEEN_TRIALS;
}
