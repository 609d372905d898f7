/* The cheapest HTTP server: every read of a connection is a GET without a body, and is answered at
 * once with the same bytes. It prints its port, and ends when its standard input is closed. One
 * thread, so that what is measured beside it is the client. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define EVENTS 256

static const char answer[] =
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 14\r\n\r\n{\"done\": true}";

static void watch(int epoll, int descriptor)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = descriptor};
    epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event);
}

int main(void)
{
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
        int number = epoll_wait(epoll, events, EVENTS, -1);
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
            ssize_t length = read(descriptor, request, sizeof request);
            if (length <= 0 || send(descriptor, answer, sizeof answer - 1, MSG_NOSIGNAL) < 0)
                close(descriptor);
        }
    }
}
