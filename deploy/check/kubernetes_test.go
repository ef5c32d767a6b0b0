package check

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/yannh/kubeconform/pkg/validator"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

// apart has the files of deploy/kubernetes that kustomization.yaml does not list.
var apart = []string{"kustomization.yaml", "loadtest-job.yaml", "limits"}

// TestManifestsFitTheSchema refuses unknown fields, missing fields and wrong types. The schema has
// no lists of allowed values.
func TestManifestsFitTheSchema(t *testing.T) {
	schemas := writeSchemas(t)
	v, err := validator.New([]string{filepath.Join(schemas, "{{.ResourceKind}}{{.KindSuffix}}.json")}, validator.Opts{Strict: true})
	require.NoError(t, err)
	for _, name := range manifests(t) {
		if name == "kustomization.yaml" {
			continue
		}
		results := v.Validate(name, io.NopCloser(bytes.NewReader(read(t, "kubernetes/"+name))))
		assert.NotEmpty(t, results, "%s has no objects", name)
		for _, r := range results {
			assert.Equal(t, validator.Valid, r.Status, "%s: %v", name, r.Err)
		}
	}
}

func manifests(t *testing.T) (names []string) {
	t.Helper()
	entries, err := os.ReadDir("../kubernetes")
	require.NoError(t, err)
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".yaml") {
			names = append(names, e.Name())
		}
	}
	return names
}

func TestKustomizationListsEachFile(t *testing.T) {
	k := readKustomization(t)
	entries, err := os.ReadDir("../kubernetes")
	require.NoError(t, err)
	var want []string
	for _, e := range entries {
		if !slices.Contains(apart, e.Name()) {
			want = append(want, e.Name())
		}
	}
	got := slices.Sorted(slices.Values(k.Resources))
	assert.Equal(t, want, got, "kustomization.yaml lists %q, and there are %q", got, want)
	assert.False(t, len(k.ConfigMapGenerator) != 1 || !slices.Equal(k.ConfigMapGenerator[0].Files, []string{"limits"}),
		"the ConfigMap is made of %+v, and there is the file limits", k.ConfigMapGenerator)
	image := deployment(t).Spec.Template.Spec.Containers[0].Image
	assert.False(t, len(k.Images) != 1 || k.Images[0].Name != image,
		"kustomization.yaml sets %+v, and the pods run %s", k.Images, image)
	assert.True(t, k.GeneratorOptions.DisableNameSuffixHash,
		"a change of limits rolls the pods, and costs all connections")
	for _, image := range k.Images {
		assert.False(t, image.NewTag == "" || image.NewTag == "latest",
			"image %s has the tag %q: name a version", image.Name, image.NewTag)
	}
}

func deployment(t *testing.T) appsv1.Deployment {
	t.Helper()
	return manifest[appsv1.Deployment](t, "deployment.yaml")
}

func job(t *testing.T) batchv1.Job {
	t.Helper()
	return manifest[batchv1.Job](t, "loadtest-job.yaml")
}

// TestPodsAreAdmittedAsRestricted uses the code of the API server, which also knows the safe
// sysctls.
func TestPodsAreAdmittedAsRestricted(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks())
	require.NoError(t, err)
	level := api.LevelVersion{Level: api.LevelRestricted, Version: api.MajorMinorVersion(1, 34)}
	for name, pod := range map[string]corev1.PodTemplateSpec{"deployment": deployment(t).Spec.Template, "job": job(t).Spec.Template} {
		result := policy.AggregateCheckResults(evaluator.EvaluatePod(level, &pod.ObjectMeta, &pod.Spec))
		assert.True(t, result.Allowed, "%s: not restricted: %s", name, result.ForbiddenDetail())
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			if s := c.SecurityContext; s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem {
				t.Errorf("%s: container %s may write to its image", name, c.Name)
			}
			assert.False(t, c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Memory().IsZero(),
				"%s: container %s has no memory limit or request", name, c.Name)
		}
	}
}

// kernelBytes is the kernel memory of a connection; loadtest/README.md has 10.2 KB for both of its
// ends.
const kernelBytes = 6 << 10

// TestAPodHasTheTimeAndMemoryItNeeds checks the comments of deployment.yaml.
func TestAPodHasTheTimeAndMemoryItNeeds(t *testing.T) {
	pod := deployment(t).Spec.Template.Spec
	c := pod.Containers[0]
	delay, timeout := durationOf(t, c.Args, "drain-delay"), durationOf(t, c.Args, "drain-timeout")
	grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second
	assert.False(t, delay <= 0 || timeout <= 0 || grace < delay+timeout+10*time.Second,
		"terminationGracePeriodSeconds is %v, for a drain of %v and %v", grace, delay, timeout)
	assert.Nil(t, c.Lifecycle, "there is a preStop hook and --drain-delay: one delay after the other")
	if p := c.ReadinessProbe; time.Duration(p.PeriodSeconds*p.FailureThreshold)*time.Second <= delay {
		t.Errorf("the readiness probe fails within --drain-delay, %v: a node drops new connections if all its pods terminate", delay)
	}
	connections := maxConnections(t)
	i := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "GOMEMLIMIT" })
	require.False(t, i < 0 || c.Env[i].ValueFrom == nil || c.Env[i].ValueFrom.ResourceFieldRef.Resource != "requests.memory",
		"GOMEMLIMIT is not the memory request")
	perSource, _ := valueOf(c.Args, "max-per-source")
	sysctls := map[string]string{}
	for _, s := range pod.SecurityContext.Sysctls {
		sysctls[s.Name] = s.Value
	}
	checkMemory(t, memoryPlan{
		heap: c.Resources.Requests.Memory().Value(), all: c.Resources.Limits.Memory().Value(), connections: connections,
		outputLimit: int64(numberIn(t, "kubernetes/limits", "output-limit")),
		perSource:   int64(atoi(t, perSource)), buffers: socketBuffers(t, sysctls),
	})
}

// A memoryPlan has the numbers of the formula in docs/run.md, "Memory in one formula".
type memoryPlan struct {
	heap, all          int64 // GOMEMLIMIT and the memory limit
	connections        int64
	outputLimit        int64
	perSource, buffers int64 // connections of one source, and the bytes of both buffers of one
}

// socketBuffers returns the largest sizes of both buffers of a socket together.
func socketBuffers(t *testing.T, sysctls map[string]string) (sum int64) {
	t.Helper()
	for _, name := range []string{"net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"} {
		sizes := strings.Fields(sysctls[name])
		require.Len(t, sizes, 3, name)
		sum += int64(atoi(t, sizes[2]))
	}
	return sum
}

func checkMemory(t *testing.T, p memoryPlan) {
	t.Helper()
	documented := strings.Join(strings.Fields(string(read(t, "../docs/run.md"))), " ")
	for _, line := range []struct {
		what        string
		least, most int64
	}{
		{"output-limit <= output-total / 16", p.outputLimit, min(p.heap/4, p.all/8) / 16},
		{"GOMEMLIMIT >= 2 * (64 MiB + 1 KiB * connections)", 2 * (64<<20 + p.connections<<10), p.heap},
		{"memory limit >= GOMEMLIMIT + 6 KiB * connections + (tcp_rmem + tcp_wmem) * max-per-source",
			p.heap + kernelBytes*p.connections + p.buffers*p.perSource, p.all},
		{"memory limit >= 2 * GOMEMLIMIT", 2 * p.heap, p.all},
	} {
		assert.LessOrEqual(t, line.least, line.most, "%s: %d is more than %d", line.what, line.least, line.most)
		assert.Contains(t, documented, line.what, "docs/run.md does not have the line %s", line.what)
	}
}

func atoi(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}

// numberIn returns a number in a file for --limits.
func numberIn(t *testing.T, name, setting string) int {
	t.Helper()
	for line := range strings.Lines(string(read(t, name))) {
		if words := strings.Fields(line); len(words) == 2 && words[0] == setting {
			return atoi(t, words[1])
		}
	}
	t.Fatalf("%s has no %s", name, setting)
	return 0
}

// TestTheJobFitsTheServer checks that the limits in the manifests allow the load test in the
// manifests.
func TestTheJobFitsTheServer(t *testing.T) {
	server, j := deployment(t).Spec.Template.Spec.Containers[0].Args, job(t)
	client := j.Spec.Template.Spec.Containers[0].Args
	number := func(args []string, name string) int {
		value, _ := valueOf(args, name)
		n, err := strconv.Atoi(value)
		require.NoError(t, err, "--%s", name)
		return n
	}
	n, limit := number(client, "connections"), number(server, "max-per-source")
	assert.LessOrEqual(t, n, limit, "a pod opens %d connections, and a source may have %d", n, limit)
	servers := int(*scaling(t).MinReplicas)
	if all, limit := int(*j.Spec.Completions)*number(client, "connections"), servers*number(server, "max-connections")*15/16; all > limit {
		t.Errorf("all pods open %d connections, and %d servers begin to make room at %d", all, servers, limit)
	}
	assert.Equal(t, *j.Spec.Parallelism, *j.Spec.Completions,
		"%d pods, and %d at once: they do not begin together", *j.Spec.Completions, *j.Spec.Parallelism)
	limits := limitsOf(t, "kubernetes/limits")
	if got := durationOf(t, client, "timeout"); got.String() != limits["read-timeout"].String() {
		t.Errorf("loadtest expects a timeout of %v, and it is %v", got, limits["read-timeout"])
	}
	if beat := durationOf(t, client, "heartbeat") * 11 / 10; beat >= limits["first-byte-timeout"] {
		t.Errorf("the first heartbeat comes after up to %v, and the first byte has to come within %v", beat, limits["first-byte-timeout"])
	}
}

// limitsOf returns the durations in a file for --limits.
func limitsOf(t *testing.T, name string) map[string]time.Duration {
	t.Helper()
	limits := map[string]time.Duration{}
	for line := range strings.Lines(string(read(t, name))) {
		line, _, _ = strings.Cut(line, "#")
		if words := strings.Fields(line); len(words) == 2 {
			if d, err := time.ParseDuration(words[1]); err == nil {
				limits[words[0]] = d
			}
		}
	}
	return limits
}

func TestFlagsOfThePodsExist(t *testing.T) {
	wantFlags(t, must(t, echoHeartbeat), deployment(t).Spec.Template.Spec.Containers[0].Args)
	spec := job(t).Spec.Template.Spec
	wantFlags(t, must(t, loadtest), spec.Containers[0].Args)
	doctor := slices.IndexFunc(spec.InitContainers, func(c corev1.Container) bool { return c.Name == "doctor" })
	wantFlags(t, must(t, loadtest), spec.InitContainers[doctor].Args)
}

// TestSelectorsFindThePods checks that each selector matches the labels of the pods.
func TestSelectorsFindThePods(t *testing.T) {
	labels := deployment(t).Spec.Template.Labels
	for name, at := range map[string][]string{
		"service.yaml": {"spec", "selector"}, "pdb.yaml": {"spec", "selector", "matchLabels"},
		"networkpolicy.yaml": {"spec", "podSelector", "matchLabels"}, "deployment.yaml": {"spec", "selector", "matchLabels"},
	} {
		var object map[string]any
		require.NoError(t, yaml.Unmarshal(read(t, "kubernetes/"+name), &object))
		for _, key := range at {
			object, _ = object[key].(map[string]any)
		}
		got := map[string]string{}
		for key, value := range object {
			got[key], _ = value.(string)
		}
		assert.Equal(t, labels, got, "%s looks for %v, and the pods have %v", name, got, labels)
	}
}

// TestPrometheusFindsThePods checks the names in deploy/prometheus against the manifests.
func TestPrometheusFindsThePods(t *testing.T) {
	pod := deployment(t).Spec.Template
	var adapter struct {
		Rules []struct{ SeriesQuery string }
	}
	require.NoError(t, yaml.Unmarshal(read(t, "prometheus/adapter.yaml"), &adapter))
	selectors, err := parse(adapter.Rules[0].SeriesQuery)
	require.NoError(t, err)
	name := scaling(t).Metrics[0].Pods.Metric.Name
	assert.Equal(t, name, selectors[0].Name, "pods are scaled by %s, and the adapter knows %s", name, selectors[0].Name)
	admin := portOf(t, pod.Spec.Containers[0], "admin")
	if said := pod.Annotations["prometheus.io/port"]; said != strconv.Itoa(int(admin.ContainerPort)) {
		t.Errorf("prometheus.io/port is %s, and the port %s is %d", said, admin.Name, admin.ContainerPort)
	}
	const meta = "__meta_kubernetes_pod_"
	for label, value := range map[string]string{
		meta + "annotation_prometheus_io_scrape": pod.Annotations["prometheus.io/scrape"],
		meta + "annotation_prometheus_io_path":   pod.Annotations["prometheus.io/path"],
		meta + "container_port_name":             admin.Name,
	} {
		found := false
		for _, r := range readScrape(t).pods(t).Relabel {
			if slices.Equal(r.From, []string{label}) {
				found = value != "" && regexp.MustCompile("^(?:"+r.Regex+")$").MatchString(value)
			}
		}
		assert.True(t, found, "scrape.yaml does not want %s=%q", label, value)
	}
}

// TestScrapesHaveTheJobOfTheAlerts checks that scrapes of pods and machines have the job that
// alerts and the dashboard select.
func TestScrapesHaveTheJobOfTheAlerts(t *testing.T) {
	s := readScrape(t)
	if interval := time.Duration(s.Global.Interval); interval <= 0 || 3*interval > time.Minute {
		t.Errorf("a minute has too few scrapes for its rate: one each %v", interval)
	}
	machines, target := s.Jobs[0], s.pods(t).Relabel
	if admin, _ := valueOf(strings.Fields(unit(t)["ExecStart"]), "admin"); !slices.Equal(machines.Static[0].Targets, []string{admin}) {
		t.Errorf("machines listen on %s, and %q is scraped", admin, machines.Static)
	}
	set := map[string]string{}
	for _, r := range target {
		set[r.To] = r.Replacement + strings.Join(r.From, ";")
	}
	assert.False(t, set["job"] != machines.Name || set["__metrics_path__"] != "__meta_kubernetes_pod_annotation_prometheus_io_path",
		"pods are scraped with %v", set)
	all := readDashboard(t).expressions()
	for _, rule := range rules(t) {
		all["alert "+rule.Alert] = rule.Expr
	}
	for where, expr := range all {
		selectors, err := parse(expr)
		assert.NoError(t, err, where)
		for _, selector := range selectors {
			for _, l := range selector.LabelMatchers {
				assert.False(t, l.Name == "job" && !l.Matches(machines.Name), "%s: %s, and the job is %s", where, l, machines.Name)
			}
		}
	}
}

// A scrape has the fields of scrape.yaml that the tests check.
type scrape struct {
	Global struct {
		Interval model.Duration `json:"scrape_interval"`
	}
	Jobs []scrapeJob `json:"scrape_configs"`
}

type scrapeJob struct {
	Name   string `json:"job_name"`
	Static []struct {
		Targets []string
	} `json:"static_configs"`
	Discovery []struct {
		Namespaces struct{ Names []string }
	} `json:"kubernetes_sd_configs"`
	Relabel []struct {
		From        []string `json:"source_labels"`
		To          string   `json:"target_label"`
		Regex       string
		Replacement string
	} `json:"relabel_configs"`
}

func readScrape(t *testing.T) (s scrape) {
	t.Helper()
	require.NoError(t, yaml.Unmarshal(read(t, "prometheus/scrape.yaml"), &s))
	return s
}

// pods returns the job that finds pods.
func (s scrape) pods(t *testing.T) scrapeJob {
	t.Helper()
	i := slices.IndexFunc(s.Jobs, func(j scrapeJob) bool { return j.Name == "idlewheel-pods" })
	require.GreaterOrEqual(t, i, 0, "scrape.yaml does not look for pods")
	return s.Jobs[i]
}
