"""Run the endpoint picker: `python -m lab.stand_ins.endpoint_picker --pool-name POOL …`.

Exit status: 0 after SIGTERM or SIGINT, 1 for a refused configuration or no way to Kubernetes, 2 for a command line that
does not parse.
"""

import asyncio
import json
import logging
import os
import signal
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

import aiohttp
import grpc

from lab.stand_ins.endpoint_picker import config as configs
from lab.stand_ins.endpoint_picker import flags as command_line
from lab.stand_ins.endpoint_picker import metrics_server, tls
from lab.stand_ins.endpoint_picker.datastore import Datastore, Endpoint
from lab.stand_ins.endpoint_picker.dialect import ENVIRONMENT_VARIABLE, Dialect, UnknownVersionError, dialect
from lab.stand_ins.endpoint_picker.director import Director
from lab.stand_ins.endpoint_picker.ext_proc import ExternalProcessor
from lab.stand_ins.endpoint_picker.health import Health
from lab.stand_ins.endpoint_picker.inflight import Accounting
from lab.stand_ins.endpoint_picker.kube import Access, ApiClient, CredentialsError, find_access
from lab.stand_ins.endpoint_picker.metrics import Metrics
from lab.stand_ins.endpoint_picker.pod_metrics import PodMetricsPoller
from lab.stand_ins.endpoint_picker.prefix_index import PrefixIndex
from lab.stand_ins.endpoint_picker.scheduler import Scheduler
from lab.stand_ins.endpoint_picker.watch import PoolWatcher

_LOG = logging.getLogger("epp")
_DEFAULT_VERSION = "0.11"
_VERBOSE = 4  # `-v` from which on the picker tells of every request


class _JsonFormatter(logging.Formatter):
    """One JSON object a line, with the keys of zap's production encoder."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        entry = {
            "level": record.levelname.lower(),
            "ts": record.created,
            "logger": record.name,
            "msg": record.getMessage(),
        }
        if record.exc_info:
            entry["stacktrace"] = self.formatException(record.exc_info)
        return json.dumps(entry)


def main(arguments: list[str]) -> int:
    """Run until a signal ends it; return the exit status."""
    try:
        flags = command_line.parse(arguments, os.environ)
        speaks = dialect(os.environ.get(ENVIRONMENT_VARIABLE, _DEFAULT_VERSION))
        text = Path(flags.config_file).read_text() if flags.config_file else flags.config_text
        config = configs.load(text, speaks)
        access = find_access(os.environ)
    except command_line.HelpRequestedError as usage:
        print(usage)
        return 0
    except command_line.FlagError as error:
        print(error, file=sys.stderr)
        return error.status
    except (UnknownVersionError, configs.ConfigError, CredentialsError, OSError, UnicodeDecodeError) as error:
        print(f"cannot start: {error}", file=sys.stderr)
        return command_line.INVALID_STATUS
    _set_up_logging(flags)
    for warning in config.warnings:
        _LOG.warning("%s", warning)
    asyncio.run(_run(flags, config, speaks, access))
    return 0


def _set_up_logging(flags: command_line.Flags) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(
        _JsonFormatter() if flags.json_logs else logging.Formatter("%(asctime)s\t%(levelname)s\t%(name)s\t%(message)s")
    )
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    _LOG.setLevel(logging.DEBUG if flags.verbosity >= _VERBOSE else logging.INFO)


async def _run(flags: command_line.Flags, config: configs.PickerConfig, speaks: Dialect, access: Access) -> None:
    """Wire the parts, serve until a signal comes, then drain."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())
        client = ApiClient(access, session)
        accounting, index = Accounting(prunes_departed_series=speaks.prunes_departed_series), PrefixIndex()

        def departed(endpoint: Endpoint) -> None:
            _LOG.info("endpoint %s left", endpoint.name)
            director.forget(endpoint)
            poller.forget(endpoint.name)

        datastore = Datastore(departed)
        poller = PodMetricsPoller(
            session,
            datastore.endpoints,
            interval=flags.refresh_metrics_interval,
            staleness=flags.metrics_staleness_threshold,
            clock=time.monotonic,
        )
        metrics = Metrics(
            speaks,
            accounting,
            config.inflight_producer.name if config.inflight_producer else None,
            lambda: [(endpoint.name, poller.latest(endpoint.name).waiting) for endpoint in datastore.endpoints()],
            flags.pool_name,
        )
        random = Random()  # noqa: S311 - breaks ties
        director = Director(
            config=config,
            scheduler=Scheduler(config, random),
            datastore=datastore,
            accounting=accounting,
            index=index,
            metrics=metrics,
            pod_metrics=poller.latest,
            clock=time.monotonic,
            random=random,
        )
        gate = metrics_server.Gate(client, time.monotonic) if flags.metrics_endpoint_auth else None
        runner = await metrics_server.serve(flags.metrics_port, metrics.render, gate)
        stack.push_async_callback(runner.cleanup)
        watcher = PoolWatcher(client, datastore, flags.pool_name, flags.pool_namespace)
        refreshing = _refresh(metrics, poller, flags.refresh_prometheus_metrics_interval)
        background = [asyncio.create_task(work) for work in (watcher.run(), poller.run(), refreshing)]
        for task in background:
            stack.push_async_callback(_cancel, task)
        health = Health(lambda: datastore.synced, leader_election=flags.ha_enable_leader_election)
        servers = await _serve(flags, health, ExternalProcessor(director, time.monotonic))
        _LOG.info("serving pool %s/%s, router dialect %s", flags.pool_namespace, flags.pool_name, speaks.version)
        await asyncio.wait({asyncio.create_task(stop.wait()), *background}, return_when=asyncio.FIRST_COMPLETED)
        for task in background:
            if task.done():
                task.result()  # a picker that no longer sees its pods must not go on: this raises
        _LOG.info("leaving; open exchanges have %s s", flags.drain_timeout)
        health.leave()
        await asyncio.gather(*(server.stop(flags.drain_timeout) for server in servers))


async def _serve(
    flags: command_line.Flags, health: Health, processor: ExternalProcessor
) -> tuple[grpc.aio.Server, grpc.aio.Server]:
    """Start the ext_proc server (first) and the health server."""
    options: list[tuple[str, int]] = [("grpc.so_reuseport", 0)]
    if flags.grpc_max_recv_msg_size:
        options.append(("grpc.max_receive_message_length", flags.grpc_max_recv_msg_size))
    if flags.grpc_max_send_msg_size:
        options.append(("grpc.max_send_message_length", flags.grpc_max_send_msg_size))
    main_server = grpc.aio.server(handlers=(processor.handler(), health.handler()), options=options)
    if flags.secure_serving:
        credentials = grpc.ssl_server_credentials([tls.certificate(flags.cert_path)])
        main_server.add_secure_port(f"[::]:{flags.grpc_port}", credentials)
    else:
        main_server.add_insecure_port(f"[::]:{flags.grpc_port}")
    health_server = grpc.aio.server(handlers=(health.handler(),), options=[("grpc.so_reuseport", 0)])
    health_server.add_insecure_port(f"[::]:{flags.grpc_health_port}")
    await main_server.start()
    await health_server.start()
    return main_server, health_server


async def _refresh(metrics: Metrics, poller: PodMetricsPoller, interval: float) -> None:
    """Keep the pool's gauges current until cancelled."""
    while True:
        metrics.refresh_pool(poller.fresh())
        await asyncio.sleep(interval)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
