# docker build -t arith-erd .
# mkdir -p runs
# docker run --rm --gpus all --user "$(id -u):$(id -g)" -v "$PWD/runs:/runs" arith-erd \
#     -m task=add,mul split=random,vs_t,vs_v seed=0-4
# Probes: add --entrypoint python, and probe.py after the image's name. GPUs need a driver for CUDA 13: 580 or newer.
#
# The full (not slim) image has the compiler that torch.compile needs. So nothing is installed from Debian's changing
# archive: the digest and the hash-locked wheels determine the contents. `docker buildx imagetools inspect
# python:3.12-bookworm` shows newer digests. Another Python version needs its own deploy/requirements.docker.txt.
ARG BASE=python:3.12.13-bookworm@sha256:3cd9086bdb30f7c9bc08a3fa621d9842e0d3f6f9291aeb4677e0547817c10b12
FROM ${BASE}

LABEL org.opencontainers.image.title="arith_erd" \
      org.opencontainers.image.description="Train, probe and dissect tiny Transformers on binary arithmetic" \
      org.opencontainers.image.version="1.0.0" \
      org.opencontainers.image.licenses="MIT"

WORKDIR /app
COPY deploy/requirements.docker.txt deploy/
RUN pip install --no-cache-dir --require-hashes -r deploy/requirements.docker.txt

COPY pyproject.toml setup.py README.md LICENSE train.py probe.py ./
COPY src src
COPY conf conf
COPY paper/claims.yaml paper/mini.yaml paper/measures.py paper/figures.py paper/
COPY paper/probes paper/probes
RUN pip install --no-cache-dir --no-deps --no-build-isolation -e . \
    && useradd --uid 1000 --no-create-home arith \
    && mkdir --mode 1777 /runs && ln -s /runs runs \
    && chmod -R a+rX /app
# chmod, since COPY keeps the modes of the checkout, and a checkout made under umask 077 is its owner's only.

# The code belongs to root. Matplotlib, torch.compile, Triton and W&B write their caches to HOME and /tmp, so any --user works.
ENV HOME=/tmp USER=arith WANDB_DIR=/runs PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 1000:1000
VOLUME /runs
ENTRYPOINT ["python", "train.py"]
