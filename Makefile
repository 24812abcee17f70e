# Everything a person or CI does with this project. `make help` lists it.
.DEFAULT_GOAL := help
SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SOURCES := numazones support exporter operator kubectl models lab docs/examples tests checks conftest.py tools
PRESENT := $(wildcard $(SOURCES))
CORES := $(shell nproc)

.PHONY: help venv lock lint format types imports style ruff tools test check check-laws check-clusters check-programs check-seen laws fuzz mutation chaos demo docs audit sbom pictures crds dashboards reference version images \
  deploy undeploy chart plugin clean

help:  ##0 list the targets
	@echo "Times are for two cores."
	@awk -F':.*##' '/^[a-z-]+:.*##[0-9] / { group = substr($$2, 1, 1); lines[group] = lines[group] sprintf("  make %-15s %s\n", $$1, substr($$2, 3)) } \
	  END { split("Try it|Change it|Check it|Generate|Build and release", titles, "|"); \
	    for (i = 1; i in titles; i++) printf "\n%s\n%s", titles[i], lines[i] }' $(MAKEFILE_LIST)

venv: $(STAMP)  ##2 .venv with everything; console scripts in .venv/bin (a few minutes, 1.1 GB)

PROJECTS := pyproject.toml models/pyproject.toml lab/pyproject.toml

$(STAMP): requirements.txt $(PROJECTS) tools/make-venv
	tools/make-venv $(VENV)
	@touch $@

lock:  ##4 renew requirements.txt from all pyproject.toml, and tools/audit-tools.txt
	$(BIN)/python -m tools.locked | $(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras \
	  --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-header --no-annotate \
	  --output-file requirements.txt -
	$(BIN)/python -m tools.locked demo > requirements-demo.txt
	$(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras \
	  --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-header --no-annotate \
	  --output-file tools/audit-tools.txt tools/audit-tools.in

# Beside each other, each one's output in one piece.
lint: venv  ##2 ruff, mypy, import contracts, style of texts
	@$(MAKE) --no-print-directory --jobs $(CORES) --output-sync=target ruff types imports style

ruff: venv
	$(BIN)/ruff check $(PRESENT)
	$(BIN)/ruff format --check $(PRESENT)

format: venv  ##2 let ruff rewrite what it can
	$(BIN)/ruff check --fix-only $(PRESENT)
	$(BIN)/ruff format $(PRESENT)

types: venv
	$(BIN)/mypy --num-workers $(CORES) $(filter-out tools,$(PRESENT)) tools/dashboards tools/generate_crds.py tools/generate_reference.py tools/metric_tables.py \
	  tools/krew/build.py tools/runbook_links.py tools/pictures.py tools/archives.py tools/locked.py tools/package_chart.py tools/targets.py \
	  tools/sbom.py tools/slim.py tools/style.py tools/wheels.py

imports: venv
	$(BIN)/lint-imports

style: venv  ##2 words and phrases to rewrite in texts that people read; ARGS=--lower after corrections
	$(BIN)/python -m tools.style $(ARGS)

tools: venv  ##3 the programs that tests start, in .cache/tools
	tools/test-tools "$(CURDIR)/.cache"

# Where Python may not keep what it compiles, every worker would spend seconds on what pytest rewrites of its plugins.
PYTEST := PYTHONDONTWRITEBYTECODE= PATH="$(CURDIR)/.cache/tools/bin:$$PATH" $(BIN)/pytest --dist worksteal
# Pure computation wants one worker per core; who waits for programs and clocks half the time wants more.
BUSY := -n $(CORES)
WAITING := -n $(shell expr 2 \* $(CORES))
ALL := --hypothesis-profile=all

QUICK_LOOP := checks/clusters/simulator/test_predictions_come_true.py
test: venv lint  ##2 lint, and all tests that start no cluster, program or browser; ARGS="-k name" (a few minutes)
	$(PYTEST) $(BUSY) --processor-budget=240 -m "not whole" tests $(QUICK_LOOP) $(ARGS)
	@echo "Not run: all examples of the laws, all vectors, clusters, programs, pages and docs. \`make check\` runs them, or one row each:"
	@echo "  make check-laws check-clusters check-programs check-seen"

check: check-laws check-clusters check-programs check-seen  ##3 everything that make test leaves out, row by row (long: run rows)

# Coverage makes every line some three times as slow, so it is measured over those quick tests that are about the library,
# with few examples of its laws.
COVERING := $(addprefix tests/,numazones operator kubectl conformance/test_dra.py) checks/laws/conformance/test_nrt_match.py
check-laws: venv  ##3 all examples of the laws, all vectors, exhaustive search, fuzz corpus, coverage of the library
	$(PYTEST) $(BUSY) $(ALL) --processor-budget=180 checks/laws $(ARGS)
	$(PYTEST) $(BUSY) $(ALL) --processor-budget=220 -m "hypothesis or whole" tests $(ARGS)
	rm -f .coverage .coverage.*
	PYTHONDONTWRITEBYTECODE= $(BIN)/coverage run -m pytest --dist worksteal $(BUSY) -q --hypothesis-profile=covering \
	  -m "not whole" $(COVERING)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

# Alone: the more it shares the processor, the more pods are overtaken in ways that its witnesses cannot tell.
LOOP := checks/clusters/operator/test_closed_loop.py
check-clusters: venv tools  ##3 operator end to end, simulator, API server, extender, plugin against a cluster, chaos
	$(PYTEST) $(ALL) --processor-budget=80 $(LOOP) $(ARGS)
	$(PYTEST) $(WAITING) $(ALL) --processor-budget=400 --ignore=$(LOOP) --ignore=$(QUICK_LOOP) checks/clusters $(ARGS)

check-programs: venv tools  ##3 the programs as shipped: exporter, plugin, images, helm, kustomize, promtool, wheels
	$(PYTEST) $(WAITING) $(ALL) --processor-budget=340 checks/programs $(ARGS)

check-seen: venv tools  ##3 what people see: the commands of the docs, pages in a browser, dashboards, benchmarks
	$(PYTEST) $(WAITING) $(ALL) --processor-budget=340 checks/seen $(ARGS)

laws: venv  ##3 look for counterexamples to the laws, with other random examples each time
	$(BIN)/pytest -n 4 -m hypothesis --hypothesis-profile=laws tests checks $(ARGS)

# Both tools are for this alone, and atheris has wheels for Linux on x86-64 only: they are no part of the environment.
fuzz: venv  ##3 look for input that breaks a parser; TARGET=name (default all), MINUTES=1 for each
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r checks/laws/fuzz/requirements.txt
	$(BIN)/python -m checks.laws.fuzz.run $(TARGET) --minutes $(or $(MINUTES),1) $(ARGS)

mutation: venv  ##3 test the tests: change a MODULE in small ways, each of which should fail some test (default all that matter most)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r tools/mutation.txt
	$(BIN)/python tools/mutation.py $(MODULE) $(ARGS)

SEED ?= $(shell echo $$RANDOM)
MINUTES ?= 10

chaos: venv  ##3 real programs under random traffic and faults, and what broke a rule; SEED=…, MINUTES=…, DEFECT=… puts one in
	$(BIN)/python -m checks.clusters.chaos $(SEED) $(MINUTES) $(if $(DEFECT),--defect $(DEFECT))

# What the demo needs is a part of the environment; the other targets add the rest.
DEMO := $(VENV)/.demo
$(DEMO): requirements-demo.txt $(PROJECTS) tools/make-venv
	@test -e $(STAMP) || tools/make-venv $(VENV) requirements-demo.txt
	@touch $@

demo: $(DEMO)  ##1 a small simulated cluster: a pod gets stuck, a plan makes room; then kubectl; ARGS=--auto does not ask (2 min; the first time 1 to 6 more, 220 MB)
	$(strip exec $(BIN)/numazones-simulator demo $(ARGS))

deploy:  ##1 build exporter and operator, install them on kubectl's cluster; REGISTRY=…, BASE=…, DRY=1 (5 min; needs docker, podman or buildah)
	@tools/deploy

undeploy:  ##1 remove all of it from kubectl's cluster (1 min)
	@tools/deploy --undeploy

docs: venv  ##1 the documentation as a site, in build/site; ARGS=serve shows it while you write
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs $(or $(ARGS),build)
	@test -n "$(ARGS)" || echo "Run make docs ARGS=serve and open http://127.0.0.1:8000, or publish build/site."

audit: venv  ##3 known vulnerabilities of what is locked, and the workflows linted; needs npm, the first PyPI itself
	tools/audit .cache/audit

sbom: venv  ##5 the wheels and their bills of materials (CycloneDX), in dist
	for folder in $(dir $(PROJECTS)); do \
	  (cd $$folder && "$(CURDIR)/$(BIN)/python" -m hatchling build --target wheel --directory "$(CURDIR)/dist") || exit; \
	done
	for name in numazones numazones_models numazones_lab; do \
	  $(BIN)/python -m tools.sbom dist/$$name-*.whl > dist/$${name/_/-}.cdx.json || exit; \
	done

pictures: venv  ##4 the pictures of the demo in docs/assets, from a demo that runs; needs chromium
	$(BIN)/python -m tools.pictures

crds: venv  ##4 write crds/ and their reference page from numazones/api
	$(BIN)/python tools/generate_crds.py

reference: venv  ##4 write docs/reference/: commands, rights and tables of metrics, from programs and manifests
	$(BIN)/python -m tools.generate_reference

dashboards: venv  ##4 write manifests/grafana from tools/dashboards
	$(BIN)/python -m tools.dashboards manifests/grafana

version:  ##5 make VERSION that of project, chart and manifests
	@test -n "$(VERSION)" || { echo "say which: make version VERSION=X.Y.Z" >&2; exit 2; }
	sed -i -E 's/^version = ".*"/version = "$(VERSION)"/; /^dependencies = / s/==[^"]*/==$(VERSION)/g' $(PROJECTS)
	sed -i -E 's/^(version|appVersion): .*/\1: $(VERSION)/' manifests/chart/Chart.yaml
	sed -i -E '/name: numazones-/ {n; s/(newTag: ).*/\1$(VERSION)/}' $(wildcard manifests/*/kustomization.yaml)

images: venv  ##5 build the images of exporter, operator and simulator; needs buildah and mmdebstrap; ARCHITECTURE=arm64 (15 min)
	ARCHITECTURE=$(ARCHITECTURE) tools/images/build

chart: venv  ##5 the Helm chart as an archive, in dist; ARGS="--registry ghcr.io/OWNER" says where its images are
	$(BIN)/python -m tools.package_chart dist $(ARGS)

plugin: venv  ##5 kubectl numazones for krew, in .cache/krew: archives and manifest; ARGS="--uri … --homepage …" for a release
	$(BIN)/python -m tools.krew.build .cache/krew $(ARGS)

clean:  ##2 remove what the other targets made
	rm -rf $(VENV) .cache build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
