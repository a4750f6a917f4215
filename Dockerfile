FROM python:3.13-slim AS build
WORKDIR /src
COPY pyproject.toml pins.txt README.md LICENSE ./
COPY runtime_core runtime_core
COPY sinks sinks
COPY sense_worker sense_worker
RUN python -m venv /opt/sense && /opt/sense/bin/pip install --no-cache-dir -c pins.txt '.[postgres]'

FROM python:3.13-slim
# A fixed number, so that the files of a volume keep their owner over rebuilds.
RUN useradd --system --uid 10001 --home-dir /var/lib/sense sense && install --directory --owner=sense --mode=700 /var/lib/sense
COPY --from=build /opt/sense /opt/sense
ENV PATH=/opt/sense/bin:$PATH HCP_HOME=/var/lib/sense PYTHONUNBUFFERED=1
USER sense
WORKDIR /var/lib/sense
VOLUME /var/lib/sense
HEALTHCHECK --interval=30s --timeout=15s --start-period=30s CMD ["sense-worker", "health", "--events"]
CMD ["sense-worker", "worker"]
