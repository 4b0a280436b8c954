/*
 * Moves the wall clock of one process. Preloaded, it adds an offset to the time of day that the
 * process reads; all other clocks stay as they are. The offset is in microseconds, in a mapped file,
 * so a step takes effect at the next reading.
 *
 * Deadlines on that clock are converted back to the kernel's: a wait of one second takes one second.
 * A step does not change a wait that has begun.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const int64_t *offset;

__attribute__((constructor)) static void map_offset(void) {
  const char *path = getenv("CLINCH_CLOCK_FILE");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *mapped = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (mapped != MAP_FAILED) offset = mapped;
}

static void move(struct timespec *point, int64_t by) {
  int64_t nanos = point->tv_nsec + by % 1000000 * 1000;
  point->tv_sec += by / 1000000;
  if (nanos < 0) {
    nanos += 1000000000;
    point->tv_sec -= 1;
  } else if (nanos >= 1000000000) {
    nanos -= 1000000000;
    point->tv_sec += 1;
  }
  point->tv_nsec = nanos;
}

/* The system calls themselves: looking functions up would allocate, and allocators read clocks. */
int clock_gettime(clockid_t clock, struct timespec *now) {
  if (syscall(SYS_clock_gettime, clock, now) != 0) return -1;
  if ((clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) && offset) {
    move(now, __atomic_load_n(offset, __ATOMIC_RELAXED));
  }
  return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  struct timespec precise;
  (void)zone;
  if (clock_gettime(CLOCK_REALTIME, &precise) != 0) return -1;
  now->tv_sec = precise.tv_sec;
  now->tv_usec = precise.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *out) {
  struct timespec precise;
  if (clock_gettime(CLOCK_REALTIME, &precise) != 0) return -1;
  if (out) *out = precise.tv_sec;
  return precise.tv_sec;
}

/* Some conditions count from the start of the machine. Which, is only known to who made them; but no
 * machine has run for as long as the wall clock has. */
static int is_of_the_wall_clock(const struct timespec *point) {
  return point->tv_sec > 1000000000;
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until) {
  struct timespec point = *until;
  if (!is_of_the_wall_clock(&point)) {
    return pthread_cond_clockwait(condition, mutex, CLOCK_MONOTONIC, &point);
  }
  if (offset) move(&point, -__atomic_load_n(offset, __ATOMIC_RELAXED));
  return pthread_cond_clockwait(condition, mutex, CLOCK_REALTIME, &point);
}
