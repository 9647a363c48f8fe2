/* Bookkeeping of the stand-in for libcuda.so.1: counts, failures, the log, and their control. */
#define _GNU_SOURCE
#include "driver.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { MAX_FAILURES = 64, LOG_LINES = 4096, LOG_WIDTH = 192 };

struct failure {
    enum call call;
    long attempt;
    int status;
};

pthread_mutex_t standin_lock = PTHREAD_MUTEX_INITIALIZER;
static char log_lines[LOG_LINES][LOG_WIDTH];
static size_t log_end;
static struct failure failures[MAX_FAILURES];
static atomic_int failure_count;
static atomic_long attempts[CALL_COUNT], successes[CALL_COUNT];
static atomic_long live[LIVE_COUNT], violations[VIOLATION_COUNT];
static atomic_long delay;

#define STANDIN_CALL_NAME(name) #name,
static const char *const call_names[] = {STANDIN_CALLS(STANDIN_CALL_NAME)};
static const char *const live_names[] = {"handle", "plan", "pack", "memory", "stream",
                                         "graph", "exec", "function", "object"};
static const char *const violation_names[] = {"shared", "destroyed", "memory", "overrides", "absent",
                                              "stale stream"};

static int find(const char *const *names, int count, const char *name)
{
    size_t length = strlen(name);
    if (length > 3 && strcmp(name + length - 3, "_v2") == 0) {
        length -= 3;
    }
    for (int i = 0; i < count; i++) {
        if (strlen(names[i]) == length && strncmp(names[i], name, length) == 0) {
            return i;
        }
    }
    return -1;
}

int enter(enum call call)
{
    long attempt = atomic_fetch_add(&attempts[call], 1) + 1;
    if (atomic_load(&failure_count) == 0) {
        return 0;
    }
    int status = 0;
    pthread_mutex_lock(&standin_lock);
    int count = atomic_load(&failure_count);
    for (int i = 0; i < count; i++) {
        if (failures[i].call == call && failures[i].attempt == attempt) {
            status = failures[i].status;
            failures[i] = failures[count - 1];
            atomic_store(&failure_count, count - 1);
            break;
        }
    }
    pthread_mutex_unlock(&standin_lock);
    return status;
}

void succeed(enum call call) { atomic_fetch_add(&successes[call], 1); }

CUresult leave(enum call call, CUresult status)
{
    if (status == CUDA_SUCCESS) {
        succeed(call);
    }
    return status;
}

void add_live(enum live_kind kind, int change) { atomic_fetch_add(&live[kind], change); }

void violate(enum violation kind) { atomic_fetch_add(&violations[kind], 1); }

static void log_locked(const char *format, va_list arguments)
{
    vsnprintf(log_lines[log_end++ % LOG_LINES], LOG_WIDTH, format, arguments);
}

void log_call(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    pthread_mutex_lock(&standin_lock);
    log_locked(format, arguments);
    pthread_mutex_unlock(&standin_lock);
    va_end(arguments);
}

long execute_delay(void) { return atomic_load(&delay); }

void sleep_delay(void)
{
    long microseconds = execute_delay();
    if (microseconds > 0) {
        nanosleep(&(struct timespec){microseconds / 1000000, microseconds % 1000000 * 1000}, NULL);
    }
}

void reset_bookkeeping(void)
{
    for (int i = 0; i < CALL_COUNT; i++) {
        atomic_store(&attempts[i], 0);
        atomic_store(&successes[i], 0);
    }
    for (int i = 0; i < VIOLATION_COUNT; i++) {
        atomic_store(&violations[i], 0);
    }
    atomic_store(&failure_count, 0);
    atomic_store(&delay, 0);
    log_end = 0;
}

/* Control, for the tests */

EXPORT int standin_fail(const char *name, int nth, int status)
{
    int call = find(call_names, CALL_COUNT, name);
    if (call < 0 || nth < 1) {
        return -1;
    }
    pthread_mutex_lock(&standin_lock);
    int count = atomic_load(&failure_count);
    if (count < MAX_FAILURES) {
        failures[count] = (struct failure){call, atomic_load(&attempts[call]) + nth, status};
        atomic_store(&failure_count, count + 1);
    }
    pthread_mutex_unlock(&standin_lock);
    return count < MAX_FAILURES ? 0 : -1;
}

EXPORT long standin_calls(const char *name)
{
    int call = find(call_names, CALL_COUNT, name);
    return call < 0 ? -1 : atomic_load(&successes[call]);
}

EXPORT long standin_live(const char *name)
{
    int kind = find(live_names, LIVE_COUNT, name);
    return kind < 0 ? -1 : atomic_load(&live[kind]);
}

EXPORT void standin_set_live(const char *name, long count)
{
    int kind = find(live_names, LIVE_COUNT, name);
    if (kind >= 0) {
        atomic_store(&live[kind], count);
    }
}

/* Of one kind, or with NULL of all that are errors whatever the test is about. */
EXPORT long standin_violations(const char *name)
{
    if (name == NULL) {
        long sum = 0;
        for (int kind = 0; kind < VIOLATION_COUNT; kind++) {
            sum += kind == VIOLATION_STALE_STREAM ? 0 : atomic_load(&violations[kind]);
        }
        return sum;
    }
    int kind = find(violation_names, VIOLATION_COUNT, name);
    return kind < 0 ? -1 : atomic_load(&violations[kind]);
}

/* Whole lines, oldest first; returns the bytes needed for all of them, the NUL included. */
EXPORT size_t standin_log(char *text, size_t size)
{
    size_t needed = 1, written = 0;
    pthread_mutex_lock(&standin_lock);
    for (size_t i = log_end > LOG_LINES ? log_end - LOG_LINES : 0; i < log_end; i++) {
        const char *line = log_lines[i % LOG_LINES];
        size_t length = strlen(line);
        needed += length + 1;
        if (needed <= size) {
            memcpy(text + written, line, length);
            text[written + length] = '\n';
            written += length + 1;
        }
    }
    pthread_mutex_unlock(&standin_lock);
    if (size > 0) {
        text[written] = '\0';
    }
    return needed;
}

EXPORT void standin_set_execute_delay(long microseconds) { atomic_store(&delay, microseconds); }
