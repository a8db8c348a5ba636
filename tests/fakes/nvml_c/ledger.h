/* Who uses how much memory of the fake cards, and which cards are lost: one file that all processes map (FAKE_CUDA_LEDGER).
 *
 * The stand-in for CUDA (tests/standin) writes it, the fake NVML reads it, so that nvidia-smi's figures are those of the programs that
 * run. Cards are numbered as NVML does. A process that ended without saying so counts no longer, as with a real driver. Any thread. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "models.h"

#define LEDGER_SLOTS 512

typedef struct {
    _Atomic int pid; /* 0: nobody's, -1: being taken */
    int padding;
    _Atomic uint64_t started; /* when the process began, in ticks after boot: numbers of processes come again */
    _Atomic int64_t bytes[MOST_CARDS];
} LedgerSlot;

typedef struct {
    _Atomic int lost[MOST_CARDS];
    LedgerSlot slots[LEDGER_SLOTS];
} Ledger;

typedef struct {
    unsigned pid;
    uint64_t bytes;
} Process;

/* The file of the environment; NULL where none is named or it cannot be used. */
Ledger *ledger(void);
/* Bytes that all living processes use on a card. */
uint64_t ledger_used(int card);
/* The living processes that use a card; returns how many, at most `most`. */
int ledger_processes(int card, Process *to, int most);
/* This process uses so many bytes more (or less) of a card. 0: the ledger is full, or there is none. */
int ledger_charge(int card, int64_t bytes);
/* This process uses no card any more. */
void ledger_leave(void);
