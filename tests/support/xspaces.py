"""XSpaces, encoded after xplane.proto: what JAX writes as JSON, as protocol buffers."""


def varint(value):
    value &= 2**64 - 1
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def table(number, names):
    """Entries of the plane's table of names: a map of numbers to messages with number and name."""
    return b"".join(
        field(number, field(1, code) + field(2, field(1, code) + field(2, name)))
        for name, code in names.items()
    )


def xspace(content, line_begin=1_700_000_000_000_000_000):
    """Encode a trace of JAX in JSON as an XSpace; its times count from the lines' begin."""
    planes = b""
    processes = {e["pid"]: e["args"]["name"] for e in content if e.get("name") == "process_name"}
    for pid, process in processes.items():
        names, stats, lines = {}, {}, b""
        threads = {
            e["tid"]: e["args"]["name"]
            for e in content
            if e.get("name") == "thread_name" and e["pid"] == pid
        }
        for tid, thread in threads.items():
            events = b""
            for event in content:
                if event.get("ph") == "X" and (event["pid"], event["tid"]) == (pid, tid):
                    code = names.setdefault(event["name"], len(names) + 1)
                    encoded = field(1, code) + field(2, round(event["ts"] * 10**6))
                    encoded += field(3, round(event["dur"] * 10**6))
                    for name, value in event.get("args", {}).items():
                        number = stats.setdefault(name, len(stats) + 1)
                        value = field(4, int(value)) if value.isdigit() else field(5, value)
                        encoded += field(4, field(1, number) + value)
                    events += field(4, encoded)
            line = field(1, tid) + field(2, thread) + field(3, line_begin) + events
            lines += field(3, line)
        plane = field(1, pid) + field(2, process) + lines + table(4, names) + table(5, stats)
        planes += field(1, plane)
    return planes + field(2, "an error") + field(1, field(2, "Task Environment"))
