/* The cheapest HTTP server: every read of a connection is a whole request, and is answered at once
 * with the same bytes. It prints its port, and ends when its standard input is closed. One thread,
 * so that what is measured beside it is the client.
 *
 * `load_server queue` is a queue, first in, first out: a request names the seconds that serving it
 * takes ({"service": 0.004}). It never sleeps, so that it is late by microseconds. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define EVENTS 256
#define LONGEST_QUEUE 65536

static const char answer[] =
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 14\r\n\r\n{\"done\": true}";

static void watch(int epoll, int descriptor)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = descriptor};
    epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event);
}

struct entry {
    int connection;
    double finish; /* on the monotonic clock, in seconds */
};

static struct entry queue[LONGEST_QUEUE];
static unsigned first, after_last;
static double free_at;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void reply(int connection)
{
    if (send(connection, answer, sizeof answer - 1, MSG_NOSIGNAL) < 0)
        close(connection);
}

static void enqueue(int connection, const char *request)
{
    const char *service = strstr(request, "\"service\":");
    double arrival = now(), start = arrival > free_at ? arrival : free_at;
    free_at = start + (service ? strtod(service + 10, NULL) : 0);
    if (after_last - first == LONGEST_QUEUE)
        exit(1);
    queue[after_last++ % LONGEST_QUEUE] = (struct entry){connection, free_at};
}

static void reply_to_finished(void)
{
    while (first != after_last && queue[first % LONGEST_QUEUE].finish <= now())
        reply(queue[first++ % LONGEST_QUEUE].connection);
}

int main(int count, char **arguments)
{
    int queued = count > 1 && !strcmp(arguments[1], "queue");
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), epoll = epoll_create1(0), on = 1;
    if (bind(listener, (struct sockaddr *)&address, size) || listen(listener, 4096))
        return 1;
    getsockname(listener, (struct sockaddr *)&address, &size);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    watch(epoll, listener);
    watch(epoll, 0);
    for (;;) {
        struct epoll_event events[EVENTS];
        int number = epoll_wait(epoll, events, EVENTS, queued ? 0 : -1);
        reply_to_finished();
        for (int index = 0; index < number; index++) {
            int descriptor = events[index].data.fd;
            if (descriptor == 0)
                return 0;
            if (descriptor == listener) {
                int connection;
                while ((connection = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
                    setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
                    watch(epoll, connection);
                }
                continue;
            }
            char request[65536];
            ssize_t length = read(descriptor, request, sizeof request - 1);
            if (length <= 0) {
                close(descriptor);
                continue;
            }
            request[length] = 0;
            if (queued)
                enqueue(descriptor, request);
            else
                reply(descriptor);
        }
    }
}
