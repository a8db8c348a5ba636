/* The cards of the fake driver, and what a test or the environment does to them. Any thread.
 *
 * Environment (read once, when the library is loaded), for programs that are started on it with LD_LIBRARY_PATH:
 *   FAKE_NVML_CARDS=8            how many cards
 *   FAKE_NVML_MODELS=h200,t4     their models in turn (h200, h200mig, a100, rtx4080, t4, gb10)
 *   FAKE_NVML_DELAY_US=20        what each call takes, asleep
 *   FAKE_NVML_COMPUTES=1         up to 1 ms computing instead, as drivers do: waking up costs more CPU time than a quick call
 *   FAKE_NVML_PCIE_US=20000      what a call of nvmlDeviceGetPcieThroughput takes (the real one measures for 20 ms)
 *   FAKE_NVML_PIDS=123,456       processes that use the cards; without it this process and its parent
 *   FAKE_NVML_HANG=NAME:1,NAME   functions that hang, for one card or for all; FAKE_NVML_HANG_S: so long (10)
 *   FAKE_NVML_OVERRUN=1          entries written behind the end of every list, as some drivers do
 *   FAKE_NVML_CALLS=FILE         at the end of the process: the calls per function
 *   FAKE_NVML_CUDA=13000         the newest CUDA that the driver supports (12080); the driver's own version goes with it
 *   FAKE_CUDA_LEDGER=FILE        who uses the cards, and which are lost, as the stand-in for CUDA writes it (ledger.h)
 * Tests call the fake_nvml_* functions at the end of this file. */
#define _GNU_SOURCE
#include "fake.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define NO_FAULT (-1)
#define FIELDS 320
#define QUICK_US 1000

#define NAME(name) #name,
static const char *const NAMES[] = {FUNCTIONS(NAME)};

Card cards[MOST_CARDS];
int card_count;
static Handle handles[MOST_CARDS][1 + MOST_INSTANCES];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate = PTHREAD_COND_INITIALIZER;
static int init_count, driver_loaded = 1, driver_epoch = 1, opened_epoch;
static unsigned session; /* grows with every start, so that handles of an earlier one are told apart */
static double frozen_s = -1;
static int computes, overrun_entries, hang_s = 10;
static int seen_after_start; /* whether a card that is plugged in is listed only after NVML was started anew */

/* One row per function and one for all of them ("*"); one column per card and one for calls without a card, or for all. */
static _Atomic int faults[FUNCTION_COUNT + 1][MOST_CARDS + 1];
static _Atomic int delays_us[FUNCTION_COUNT + 1][MOST_CARDS + 1];
static _Atomic int gates[FUNCTION_COUNT + 1][MOST_CARDS + 1];
static _Atomic int field_faults[FIELDS][MOST_CARDS + 1];
static _Atomic int any_gate, waiting;
static _Atomic long calls[FUNCTION_COUNT][MOST_CARDS + 1];

/* --- the way into every function ------------------------------------------------------------------------------------- */

static int pick(_Atomic int table[FUNCTION_COUNT + 1][MOST_CARDS + 1], Function function, int card) {
    const int column = card < 0 ? MOST_CARDS : card;
    int found = table[function][column];
    if (found < 0) found = table[function][MOST_CARDS];
    if (found < 0) found = table[FUNCTION_COUNT][column];
    if (found < 0) found = table[FUNCTION_COUNT][MOST_CARDS];
    return found;
}

static double monotonic_s(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void take_time(int us) {
    static _Thread_local int slack_set;
    if (us <= 0) return;
    if (computes && us <= QUICK_US) {
        const double until = monotonic_s() + us / 1e6;
        while (monotonic_s() < until) {
        }
        return;
    }
    if (!slack_set) {
        prctl(PR_SET_TIMERSLACK, 1UL); /* the usual 50 us would make 20 us 75 */
        slack_set = 1;
    }
    struct timespec pause = {us / 1000000, (us % 1000000) * 1000L};
    clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
}

/* Hang until released; after 10 s (`hang_s`) at most, so that a test that fails ends. */
static int hang(Function function, int card) {
    struct timespec until;
    int timed_out = 0;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += hang_s;
    pthread_mutex_lock(&lock);
    waiting++;
    while (pick(gates, function, card) > 0 && !timed_out) timed_out = pthread_cond_timedwait(&gate, &lock, &until) != 0;
    waiting--;
    pthread_mutex_unlock(&lock);
    return timed_out ? TIMEOUT : SUCCESS;
}

int enter(Function function, int card) {
    const int starting = function == F_nvmlInit_v2 || function == F_nvmlInitWithFlags;
    atomic_fetch_add_explicit(&calls[function][card < 0 ? MOST_CARDS : card], 1, memory_order_relaxed);
    take_time(pick(delays_us, function, card));
    if (any_gate && pick(gates, function, card) > 0) {
        const int code = hang(function, card);
        if (code) return code;
    }
    if (!starting && function != F_nvmlShutdown) {
        if (!init_count) return UNINITIALIZED;
        if (!driver_loaded) return DRIVER_NOT_LOADED;
        if (opened_epoch != driver_epoch) return UNKNOWN; /* the driver that this session was opened with is gone */
    }
    const int code = pick(faults, function, card);
    return code > 0 ? code : SUCCESS;
}

static int known(const Handle *handle) {
    const Handle *first = &handles[0][0];
    return handle >= first && handle < first + sizeof handles / sizeof *first;
}

int resolve(const Handle *handle, Card **card, int *instance) {
    if (!known(handle) || handle->session != session) return INVALID_ARGUMENT;
    Card *found = &cards[handle->card];
    if (is_lost(found) || !found->listed) return GPU_IS_LOST;
    if (handle->instance >= 0 && (handle->mig_generation != found->mig_generation || handle->instance >= found->instances))
        return INVALID_ARGUMENT;
    *card = found;
    *instance = handle->instance;
    return SUCCESS;
}

int enter_device(Function function, const Handle *handle, Card **card, int *instance) {
    const int code = enter(function, known(handle) ? handle->card : -1);
    return code ? code : resolve(handle, card, instance);
}

int field_fault(int card, unsigned field) {
    if (field >= FIELDS) return SUCCESS; /* readings.c says that there is no such field */
    const int code = field_faults[field][card];
    return code > 0 ? code : SUCCESS;
}

int overrun(void) { return overrun_entries; }

int session_start(void) {
    pthread_mutex_lock(&lock);
    const int code = driver_loaded ? SUCCESS : DRIVER_NOT_LOADED;
    if (!code && init_count++ == 0) {
        session++;
        opened_epoch = driver_epoch;
    }
    pthread_mutex_unlock(&lock);
    return code;
}

int session_end(void) {
    pthread_mutex_lock(&lock);
    const int code = init_count ? SUCCESS : UNINITIALIZED;
    if (!code) init_count--;
    pthread_mutex_unlock(&lock);
    return code;
}

int is_lost(const Card *card) { return card->lost || (ledger() && ledger()->lost[card->number]); }

static int visible(const Card *card) { return card->listed && (!seen_after_start || card->born < session); }

int listed_count(void) {
    int count = 0;
    for (int i = 0; i < card_count; i++) count += visible(&cards[i]);
    return count;
}

Card *listed_card(unsigned index) {
    for (int i = 0; i < card_count; i++)
        if (visible(&cards[i]) && index-- == 0) return &cards[i];
    return NULL;
}

int index_of(const Card *card) {
    int index = 0;
    for (int i = 0; i < card->number; i++) index += visible(&cards[i]);
    return index;
}

Handle *handle_of(const Card *card, int instance) {
    Handle *handle = &handles[card->number][instance + 1];
    *handle = (Handle){card->number, instance, session, card->mig_generation};
    return handle;
}

/* --- values over time ------------------------------------------------------------------------------------------------ */

double now_s(void) {
    return frozen_s >= 0 ? frozen_s : monotonic_s();
}

static const double PERIOD_S = 40, MIDDLE = 0.55, SWING = 0.4, TURN = 6.283185307179586;

double busy(const Card *card) { return MIDDLE + SWING * sin(TURN * now_s() / PERIOD_S + 0.9 * card->number); }

double busy_integral(const Card *card) {
    const double t = now_s();
    return MIDDLE * t - SWING * PERIOD_S / TURN * cos(TURN * t / PERIOD_S + 0.9 * card->number) + SWING * PERIOD_S;
}

/* --- control: what tests call ---------------------------------------------------------------------------------------- */

static int function_number(const char *name) {
    if (!strcmp(name, "*")) return FUNCTION_COUNT;
    for (int i = 0; i < FUNCTION_COUNT; i++)
        if (!strcmp(name, NAMES[i])) return i;
    return -1;
}

static int set(_Atomic int table[FUNCTION_COUNT + 1][MOST_CARDS + 1], const char *function, int card, int value) {
    const int number = function_number(function);
    if (number < 0 || card >= MOST_CARDS) return INVALID_ARGUMENT;
    table[number][card < 0 ? MOST_CARDS : card] = value;
    return SUCCESS;
}

/* A card more; returns its number, -1 where the model is not known or there is no room. NULL: the usual model of that place. */
API int fake_nvml_add(const char *model) {
    int mig;
    if (card_count == MOST_CARDS) return -1;
    const Model *found = model_of(model ? model : usual_model(card_count), &mig);
    if (!found) return -1;
    Card *card = &cards[card_count];
    memset(card, 0, sizeof *card);
    card->model = found;
    card->number = card_count;
    card->mig = mig;
    card->instances = mig ? 2 : 0;
    snprintf(card->name, sizeof card->name, "%s", found->name);
    card->listed = 1;
    card->born = init_count ? session : 0;
    return card_count++;
}

/* Everything as it was at first: `count` cards, no fault, no delay, no call counted, the driver loaded, nothing initialised. */
API void fake_nvml_reset(int count) {
    pthread_mutex_lock(&lock);
    for (int f = 0; f <= FUNCTION_COUNT; f++)
        for (int c = 0; c <= MOST_CARDS; c++) {
            faults[f][c] = delays_us[f][c] = gates[f][c] = NO_FAULT;
            if (f < FUNCTION_COUNT) calls[f][c] = 0;
        }
    for (int f = 0; f < FIELDS; f++)
        for (int c = 0; c <= MOST_CARDS; c++) field_faults[f][c] = NO_FAULT;
    any_gate = 0;
    init_count = 0;
    driver_loaded = 1;
    driver_epoch++;
    frozen_s = -1;
    seen_after_start = 0;
    card_count = 0;
    for (int i = 0; i < count; i++) fake_nvml_add(NULL);
    pthread_cond_broadcast(&gate);
    pthread_mutex_unlock(&lock);
}

/* Let a function ("*": each of them) return a code, for one card or for all (-1). 0: let it work although "*" fails; -1: forget this. */
API int fake_nvml_fail(const char *function, int card, int code) { return set(faults, function, card, code); }

/* The same for one value of nvmlDeviceGetFieldValues. */
API void fake_nvml_fail_field(unsigned field, int card, int code) {
    if (field < FIELDS) field_faults[field][card] = code;
}

API int fake_nvml_delay(const char *function, int card, int us) { return set(delays_us, function, card, us); }

/* Let a function hang until `fake_nvml_release`. */
API int fake_nvml_block(const char *function, int card) {
    const int code = set(gates, function, card, 1);
    any_gate = 1;
    return code;
}

/* Let a function not hang for a card although it does for all. */
API int fake_nvml_unblock(const char *function, int card) { return set(gates, function, card, 0); }

/* The handle by which NVML gives out a card or (instance 0, …) a part of it; any card, lost or not. */
API int fake_nvml_handle(int card, int instance, const Handle **to) {
    if (card < 0 || card >= card_count || instance >= MOST_INSTANCES) return INVALID_ARGUMENT;
    *to = &handles[card][instance + 1];
    return SUCCESS;
}

/* Let go whatever hangs. */
API void fake_nvml_release(void) {
    pthread_mutex_lock(&lock);
    for (int f = 0; f <= FUNCTION_COUNT; f++)
        for (int c = 0; c <= MOST_CARDS; c++) gates[f][c] = NO_FAULT;
    any_gate = 0;
    pthread_cond_broadcast(&gate);
    pthread_mutex_unlock(&lock);
}

/* How many threads hang. */
API int fake_nvml_waiting(void) { return waiting; }

/* A card that falls off the bus, and comes back (0). Its place in the list stays. */
API void fake_nvml_lose(int card, int lost) { cards[card].lost = lost; }

/* A card that is taken out of the list (0), or put back; later ones move up. */
API void fake_nvml_list(int card, int listed) { cards[card].listed = listed; }

/* Whether a card that is plugged in is listed only after NVML was started anew. */
API void fake_nvml_seen_after_start(int so) { seen_after_start = so; }

/* MIG mode; each change makes new instances with new UUIDs. */
API void fake_nvml_mig(int card, int on, int instances) {
    cards[card].mig_generation++;
    cards[card].mig = on;
    cards[card].instances = on ? instances : 0;
}

API void fake_nvml_name(int card, const char *name) { snprintf(cards[card].name, sizeof cards[card].name, "%s", name); }

/* The processes of a card. kind 0: compute, 1: graphics. A count of -1: the usual ones again. */
API void fake_nvml_processes(int card, int kind, int count, const unsigned *pids, const uint64_t *bytes) {
    Card *at = &cards[card];
    at->own_processes[kind] = count >= 0;
    at->process_count[kind] = count < 0 ? 0 : count > MOST_PROCESSES ? MOST_PROCESSES : count;
    for (int i = 0; i < at->process_count[kind]; i++) at->processes[kind][i] = (Process){pids[i], bytes[i]};
}

/* Unload the driver (0) and load it again: what was opened before stays broken until NVML is shut down and started anew. */
API void fake_nvml_driver(int loaded) {
    if (loaded && !driver_loaded) driver_epoch++;
    driver_loaded = loaded;
}

/* Hold the time that values depend on; below 0: let it run. */
API void fake_nvml_freeze(double seconds) { frozen_s = seconds; }

/* Calls so far: of a function or of all ("*"), for a card or for all (-1). */
API long fake_nvml_calls(const char *function, int card) {
    const int number = function_number(function);
    long sum = 0;
    for (int f = 0; f < FUNCTION_COUNT; f++)
        for (int c = 0; c <= MOST_CARDS; c++)
            if ((number == f || number == FUNCTION_COUNT) && (card < 0 || card == c)) sum += calls[f][c];
    return sum;
}

API void fake_nvml_reset_calls(void) {
    for (int f = 0; f < FUNCTION_COUNT; f++)
        for (int c = 0; c <= MOST_CARDS; c++) calls[f][c] = 0;
}

/* How often NVML was started and not yet shut down. */
API int fake_nvml_initialised(void) { return init_count; }

API const char *fake_nvml_function(int number) { return number < 0 || number >= FUNCTION_COUNT ? NULL : NAMES[number]; }

static int number_from_environment(const char *name, int otherwise) {
    const char *text = getenv(name);
    return text && *text ? atoi(text) : otherwise;
}

static void hang_by_environment(void) {
    char names[1024];
    snprintf(names, sizeof names, "%s", getenv("FAKE_NVML_HANG") ? getenv("FAKE_NVML_HANG") : "");
    for (char *name = strtok(names, ","); name; name = strtok(NULL, ",")) {
        char *card = strchr(name, ':');
        if (card) *card++ = 0;
        if (fake_nvml_block(name, card ? atoi(card) : -1)) fprintf(stderr, "fake NVML: no function %s\n", name);
    }
    hang_s = number_from_environment("FAKE_NVML_HANG_S", hang_s);
}

static void write_calls(void) {
    FILE *file = fopen(getenv("FAKE_NVML_CALLS"), "w");
    if (!file) return;
    for (int f = 0; f < FUNCTION_COUNT; f++)
        if (fake_nvml_calls(NAMES[f], -1)) fprintf(file, "%s %ld\n", NAMES[f], fake_nvml_calls(NAMES[f], -1));
    fclose(file);
}

__attribute__((constructor)) static void load(void) {
    fake_nvml_reset(0);
    const char *keys[MOST_CARDS];
    const int count = models_by_environment(keys, MOST_CARDS);
    for (int i = 0; i < count; i++)
        if (fake_nvml_add(keys[i]) < 0) fprintf(stderr, "fake NVML: no card %d\n", i);
    const int delay = number_from_environment("FAKE_NVML_DELAY_US", 0);
    fake_nvml_delay("*", -1, delay);
    fake_nvml_delay("nvmlInitWithFlags", -1, 0);
    fake_nvml_delay("nvmlDeviceGetPcieThroughput", -1, number_from_environment("FAKE_NVML_PCIE_US", 20000));
    hang_by_environment();
    computes = number_from_environment("FAKE_NVML_COMPUTES", 0);
    overrun_entries = number_from_environment("FAKE_NVML_OVERRUN", 0);
    if (getenv("FAKE_NVML_CALLS")) atexit(write_calls);
}
