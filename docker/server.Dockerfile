# The page
FROM node:20-bookworm-slim AS page
WORKDIR /src/frontend
COPY frontend/package.json frontend/package-lock.json ./
RUN npm ci --no-audit --no-fund
COPY openapi.json /src/openapi.json
COPY frontend/ ./
RUN npm run build

# The SDK's wheel with the native core; this layer changes with sdk/ alone
FROM rust:1.88-bookworm AS sdk
RUN apt-get update && apt-get install -y --no-install-recommends python3-pip python3-venv && rm -rf /var/lib/apt/lists/*
COPY sdk/ /src/sdk
RUN pip wheel --no-deps --wheel-dir /wheels /src/sdk

# The server's wheel
FROM python:3.11-slim-bookworm AS server
COPY pyproject.toml README.md LICENSE /src/
COPY backend /src/backend
COPY workers /src/workers
COPY migrations /src/migrations
COPY scripts/include_resources.py /src/scripts/include_resources.py
COPY --from=page /src/frontend/dist /src/frontend/dist
RUN pip wheel --no-deps --wheel-dir /wheels /src

FROM python:3.11-slim-bookworm
COPY requirements/run.lock /tmp/run.lock
RUN pip install --no-cache-dir --require-hashes -r /tmp/run.lock && rm /tmp/run.lock
COPY --from=sdk /wheels /wheels
COPY --from=server /wheels /wheels
RUN pip install --no-cache-dir --no-deps /wheels/*.whl && rm -r /wheels \
    && useradd --system --uid 10001 --home-dir /var/lib/penstock --create-home penstock
USER penstock
VOLUME /var/lib/penstock
EXPOSE 8080
CMD ["penstock", "up"]
