#!/usr/bin/env python3
"""Streams completions from a running server at several loads and prints what its users see, one JSON object a load:
tokens/s over all streams, time to the first token and between tokens (median and 95th percentile, ms), errors.
Needs Python's standard library alone.
usage: serve_load.py [--url http://127.0.0.1:8000] [--streams 1,4,16] [--prompt 128] [--tokens 128] [--rounds 2]"""

import argparse
import http.client
import json
import random
import statistics
import sys
import threading
import time
import urllib.parse


def stream(url, body, result):
    """One completion: `result` gets the times of its tokens, or an error."""
    begin = time.monotonic()
    times = []
    try:
        connection = http.client.HTTPConnection(url.hostname, url.port or 80, timeout=600)
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            raise RuntimeError(f"HTTP {response.status}: {response.read(500).decode(errors='replace')}")
        usage = None
        for line in response:
            if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                continue
            event = json.loads(line[6:])
            if "error" in event:
                raise RuntimeError(event["error"]["message"])
            usage = event.get("usage") or usage
            if event.get("choices") and not event["choices"][0].get("finish_reason"):
                times.append(time.monotonic())
        if not usage or not times:
            raise RuntimeError("the stream ended early")
        result.update(first=times[0] - begin, times=times, tokens=usage["completion_tokens"])
    except Exception as error:  # counted and shown: a load test goes on
        result.update(error=f"{type(error).__name__}: {error}")


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def measure(url, model, streams, options):
    results = [{} for _ in range(streams)]
    threads = []
    begin = time.monotonic()
    for i, result in enumerate(results):
        # Ids of an own: no prefix of another stream is found.
        prompt = [random.randrange(100, 30000) for _ in range(options.prompt)]
        body = {"model": model, "prompt": prompt, "max_tokens": options.tokens, "temperature": 0, "ignore_eos": True, "stream": True,
                "seed": i, "stream_options": {"include_usage": True}}
        threads.append(threading.Thread(target=stream, args=(url, body, result)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - begin
    good = [result for result in results if "times" in result]
    gaps = [later - earlier for result in good for earlier, later in zip(result["times"], result["times"][1:])]
    tokens = sum(result["tokens"] for result in good)
    decode_begin = max((result["times"][0] for result in good), default=begin)
    decode_end = min((result["times"][-1] for result in good), default=begin)
    in_decode = sum(1 for result in good for at in result["times"] if decode_begin < at <= decode_end)
    line = {"streams": streams, "prompt": options.prompt, "tokens": tokens, "seconds": round(seconds, 3),
            "tokens_per_s": round(tokens / seconds, 1), "errors": [result["error"] for result in results if "error" in result]}
    if good:
        line |= {"first_token_ms": round(statistics.median(result["first"] for result in good) * 1e3, 1),
                 "first_token_p95_ms": round(percentile([result["first"] for result in good], 0.95) * 1e3, 1)}
    if gaps:
        line |= {"gap_ms": round(statistics.median(gaps) * 1e3, 2), "gap_p95_ms": round(percentile(gaps, 0.95) * 1e3, 2)}
    if decode_end > decode_begin:  # while every stream decodes
        line["steady_tokens_per_s"] = round(in_decode / (decode_end - decode_begin), 1)
    return line


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--streams", default="1,4,16")
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=2, help="of each load; the last one is printed")
    parser.add_argument("--wait", type=float, default=120, help="seconds until the server must answer")
    options = parser.parse_args()
    url = urllib.parse.urlparse(options.url)
    deadline = time.monotonic() + options.wait
    while True:
        try:
            connection = http.client.HTTPConnection(url.hostname, url.port or 80, timeout=10)
            connection.request("GET", "/v1/models")
            model = json.loads(connection.getresponse().read())["data"][0]["id"]
            break
        except (OSError, KeyError, ValueError) as error:
            if time.monotonic() > deadline:
                sys.exit(f"{options.url}: no server: {error}")
            time.sleep(0.2)
    failed = False
    for streams in map(int, options.streams.split(",")):
        for _ in range(options.rounds):
            line = measure(url, model, streams, options)
        failed |= bool(line["errors"])
        print(json.dumps(line), flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
