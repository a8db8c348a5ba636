#define _GNU_SOURCE
#include "ledger.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static Ledger *mapped;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int own_slot = -1, owner; /* the slot of the process `owner`: a forked child has to take its own */

static void open_it(void) {
    const char *path = getenv("FAKE_CUDA_LEDGER");
    if (!path || !*path) return;
    const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, sizeof(Ledger))) {
        fprintf(stderr, "FAKE_CUDA_LEDGER: %s cannot be used\n", path);
        if (file >= 0) close(file);
        return;
    }
    void *at = mmap(NULL, sizeof(Ledger), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (at != MAP_FAILED) mapped = at;
}

Ledger *ledger(void) {
    pthread_once(&once, open_it);
    return mapped;
}

/* When a process began; 0 where it is gone, also where only its parent has not noticed. */
static uint64_t start_of(int pid) {
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    const size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = 0;
    char *at = strrchr(text, ')'); /* the name before may hold anything */
    if (!at || at[1] != ' ' || strchr("ZX", at[2])) return 0;
    at += 2; /* field 3, the state; the start is field 22 */
    for (int field = 3; field < 22 && at; field++) at = strchr(at + 1, ' ');
    return at ? strtoull(at, NULL, 10) : 0;
}

static int alive(const LedgerSlot *slot) {
    const int pid = slot->pid;
    return pid > 0 && start_of(pid) == slot->started;
}

uint64_t ledger_used(int card) {
    Process list[LEDGER_SLOTS];
    uint64_t used = 0;
    const int count = ledger_processes(card, list, LEDGER_SLOTS);
    for (int i = 0; i < count; i++) used += list[i].bytes;
    return used;
}

int ledger_processes(int card, Process *to, int most) {
    int count = 0;
    for (int i = 0; ledger() && i < LEDGER_SLOTS && count < most; i++) {
        const LedgerSlot *slot = &mapped->slots[i];
        const int64_t bytes = slot->bytes[card];
        if (slot->pid && bytes > 0 && alive(slot)) to[count++] = (Process){(unsigned)slot->pid, (uint64_t)bytes};
    }
    return count;
}

static LedgerSlot *own(void) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    const int pid = getpid();
    if (!ledger()) return NULL;
    pthread_mutex_lock(&lock);
    if (owner != pid) own_slot = -1;
    for (int i = 0; own_slot < 0 && i < LEDGER_SLOTS; i++) {
        LedgerSlot *slot = &mapped->slots[i];
        int before = slot->pid;
        if (before < 0 || (before && alive(slot))) continue;
        if (!atomic_compare_exchange_strong(&slot->pid, &before, -1)) continue; /* another process was quicker */
        slot->started = start_of(pid);
        for (int card = 0; card < MOST_CARDS; card++) slot->bytes[card] = 0;
        slot->pid = pid;
        own_slot = i;
        owner = pid;
    }
    pthread_mutex_unlock(&lock);
    return own_slot < 0 ? NULL : &mapped->slots[own_slot];
}

int ledger_charge(int card, int64_t bytes) {
    LedgerSlot *slot = own();
    if (slot) slot->bytes[card] += bytes;
    return slot != NULL;
}

void ledger_leave(void) {
    if (own_slot >= 0 && owner == getpid()) mapped->slots[own_slot].pid = 0;
    own_slot = -1;
}
