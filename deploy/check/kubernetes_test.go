package check

import (
	"bytes"
	"io"
	"net"
	"os"
	"path"
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
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// apart has the files of deploy/kubernetes that kustomization.yaml does not list.
var apart = []string{"kustomization.yaml", "loadtest-job.yaml", "limits"}

// TestManifestsFitTheSchema refuses unknown fields, missing fields and wrong types. The schema has
// no lists of allowed values.
func TestManifestsFitTheSchema(t *testing.T) {
	schemas := writeSchemas(t)
	v, err := validator.New([]string{filepath.Join(schemas, "{{.ResourceKind}}{{.KindSuffix}}.json")}, validator.Opts{Strict: true})
	require.NoError(t, err)
	files, err := filepath.Glob("../kubernetes/*.yaml")
	require.NoError(t, err)
	for _, file := range files {
		name := filepath.Base(file)
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

func TestKustomizationListsEachFile(t *testing.T) {
	k := decode[kustomization](t, "kubernetes/kustomization.yaml")
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
	return decode[appsv1.Deployment](t, "kubernetes/deployment.yaml")
}

func job(t *testing.T) batchv1.Job {
	t.Helper()
	return decode[batchv1.Job](t, "kubernetes/loadtest-job.yaml")
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
	i := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "GOMEMLIMIT" })
	require.False(t, i < 0 || c.Env[i].ValueFrom == nil || c.Env[i].ValueFrom.ResourceFieldRef.Resource != "requests.memory",
		"GOMEMLIMIT is not the memory request")
	checkMemory(t, memoryPlan{
		heap: c.Resources.Requests.Memory().Value(), all: c.Resources.Limits.Memory().Value(),
		connections: int64(numberOf(t, c.Args, "max-connections")),
		outputLimit: int64(atoi(t, limitIn(t, "kubernetes/limits", "output-limit"))),
		perSource:   int64(numberOf(t, c.Args, "max-per-source")), buffer: int64(numberOf(t, c.Args, "socket-buffer")),
	})
}

// A memoryPlan has the numbers of the formula in docs/run.md, "Memory in one formula".
type memoryPlan struct {
	heap, all         int64 // GOMEMLIMIT and the memory limit
	connections       int64
	outputLimit       int64
	perSource, buffer int64 // connections of one source, and the bytes of each buffer of one
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
		{"memory limit >= GOMEMLIMIT + 6 KiB * connections + 2 * socket-buffer * max-per-source",
			p.heap + kernelBytes*p.connections + 2*p.buffer*p.perSource, p.all},
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

// TestTheJobFitsTheServer checks that the limits in the manifests allow the load test in the
// manifests.
func TestTheJobFitsTheServer(t *testing.T) {
	server, j := deployment(t).Spec.Template.Spec.Containers[0].Args, job(t)
	client := j.Spec.Template.Spec.Containers[0].Args
	n, limit := numberOf(t, client, "connections"), numberOf(t, server, "max-per-source")
	assert.LessOrEqual(t, n, limit, "a pod opens %d connections, and a source may have %d", n, limit)
	servers := int(*scaling(t).MinReplicas)
	if all, limit := int(*j.Spec.Completions)*n, servers*numberOf(t, server, "max-connections")*15/16; all > limit {
		t.Errorf("all pods open %d connections, and %d servers begin to make room at %d", all, servers, limit)
	}
	assert.Equal(t, *j.Spec.Parallelism, *j.Spec.Completions,
		"%d pods, and %d at once: they do not begin together", *j.Spec.Completions, *j.Spec.Parallelism)
	timeout, err := time.ParseDuration(limitIn(t, "kubernetes/limits", "read-timeout"))
	require.NoError(t, err)
	assert.Equal(t, timeout, durationOf(t, client, "timeout"), "loadtest expects another timeout")
	first, err := time.ParseDuration(limitIn(t, "kubernetes/limits", "first-byte-timeout"))
	require.NoError(t, err)
	assert.Less(t, durationOf(t, client, "heartbeat")*11/10, first, "the first heartbeat comes after the first byte has to come")
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
		object := decode[map[string]any](t, "kubernetes/"+name)
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
	adapter := decode[struct {
		Rules []struct{ SeriesQuery string }
	}](t, "prometheus/adapter.yaml")
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
		for _, r := range decode[scrape](t, "prometheus/scrape.yaml").pods(t).Relabel {
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
	s := decode[scrape](t, "prometheus/scrape.yaml")
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
	all := decode[dashboard](t, "grafana/idlewheel.json").expressions()
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

// pods returns the job that finds pods.
func (s scrape) pods(t *testing.T) scrapeJob {
	t.Helper()
	i := slices.IndexFunc(s.Jobs, func(j scrapeJob) bool { return j.Name == "idlewheel-pods" })
	require.GreaterOrEqual(t, i, 0, "scrape.yaml does not look for pods")
	return s.Jobs[i]
}

// A kustomization has the fields that the tests check.
type kustomization struct {
	Namespace          string
	Resources          []string
	ConfigMapGenerator []struct {
		Name  string
		Files []string
	}
	GeneratorOptions struct{ DisableNameSuffixHash bool }
	Images           []struct{ Name, NewTag string }
}

// portOf returns the port of a container on which a flag makes the server listen, at all addresses:
// without a host. 0.0.0.0 would leave out a pod with IPv6 only.
func portOf(t *testing.T, c corev1.Container, flag string) corev1.ContainerPort {
	t.Helper()
	value, _ := valueOf(c.Args, flag)
	host, number, err := net.SplitHostPort(value)
	require.NoError(t, err, "--%s", flag)
	assert.Empty(t, host, "--%s=%s: unreachable from outside of the pod", flag, value)
	for _, p := range c.Ports {
		if strconv.Itoa(int(p.ContainerPort)) == number && p.Name != "" {
			return p
		}
	}
	t.Fatalf("--%s=%s, and the ports with a name are %v", flag, value, c.Ports)
	return corev1.ContainerPort{}
}

func TestTheServiceKeepsClientAddresses(t *testing.T) {
	client := portOf(t, deployment(t).Spec.Template.Spec.Containers[0], "addr")
	s := decode[corev1.Service](t, "kubernetes/service.yaml").Spec
	assert.False(t, len(s.Ports) != 1 || s.Ports[0].TargetPort.StrVal != client.Name,
		"the Service leads to %+v, and clients to %s: nothing else may be reached from outside", s.Ports, client.Name)
	assert.False(t, s.Type != corev1.ServiceTypeLoadBalancer || s.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal,
		"type %s with externalTrafficPolicy %q: --max-per-source takes a node for a client", s.Type, s.ExternalTrafficPolicy)
}

func TestProbesUseTheAdminListenerAndFailLate(t *testing.T) {
	c := deployment(t).Spec.Template.Spec.Containers[0]
	admin := portOf(t, c, "admin")
	for path, probe := range map[string]*corev1.Probe{"/readyz": c.ReadinessProbe, "/livez": c.LivenessProbe} {
		if get := probe.HTTPGet; get == nil || get.Path != path || get.Port.StrVal != admin.Name {
			t.Errorf("a probe asks %+v instead of %s of the port %s", get, path, admin.Name)
		}
		assert.GreaterOrEqual(t, probe.TimeoutSeconds, int32(5), "%s: during a flood of many networks an answer takes longer", path)
	}
	if p := c.LivenessProbe; p.PeriodSeconds*p.FailureThreshold < 60 {
		t.Errorf("after %d times %d s the pod is killed, with all of its connections", p.FailureThreshold, p.PeriodSeconds)
	}
	assert.Nil(t, c.StartupProbe, "there is nothing to wait for at the start, and a startup probe")
}

var createCommand = regexp.MustCompile(`kubectl -n \S+ create (secret generic|configmap) (\S+) --from-literal=([^=]+)=`)

// TestSecretsAndConfigMapsAreCreated checks that kustomization.yaml or a command of the README
// creates each volume and variable of the pods, and that they contain the files in flags.
func TestSecretsAndConfigMapsAreCreated(t *testing.T) {
	type source struct{ kind, name string }
	keys := map[source][]string{}
	for _, made := range decode[kustomization](t, "kubernetes/kustomization.yaml").ConfigMapGenerator {
		keys[source{"configmap", made.Name}] = made.Files
	}
	for _, m := range createCommand.FindAllStringSubmatch(string(read(t, "README.md")), -1) {
		s := source{strings.Fields(m[1])[0], m[2]}
		keys[s] = append(keys[s], m[3])
	}
	server := deployment(t).Spec.Template.Spec
	volumes := map[string]source{}
	for _, v := range server.Volumes {
		switch {
		case v.ConfigMap != nil:
			volumes[v.Name] = source{"configmap", v.ConfigMap.Name}
		case v.Secret != nil:
			volumes[v.Name] = source{"secret", v.Secret.SecretName}
		}
		assert.NotNil(t, keys[volumes[v.Name]], "nothing creates the volume %s of %v", v.Name, volumes[v.Name])
	}
	var files []string
	for _, m := range server.Containers[0].VolumeMounts {
		for _, key := range keys[volumes[m.Name]] {
			files = append(files, path.Join(m.MountPath, key))
		}
	}
	for _, flag := range []string{"limits", "admin-token-file"} {
		file, _ := valueOf(server.Containers[0].Args, flag)
		assert.Contains(t, files, file, "--%s=%s, and there are %q", flag, file, files)
	}
	assert.NotNil(t, server.SecurityContext.FSGroup,
		"without fsGroup the files are those of root, which the server is not")
	for _, e := range job(t).Spec.Template.Spec.Containers[0].Env {
		if e.ValueFrom == nil || e.ValueFrom.ConfigMapKeyRef == nil {
			continue
		}
		from := e.ValueFrom.ConfigMapKeyRef
		assert.Contains(t, keys[source{"configmap", from.Name}], from.Key, "%s is %+v, and there are %v", e.Name, from, keys)
	}
}

func scaling(t *testing.T) autoscalingv2.HorizontalPodAutoscalerSpec {
	t.Helper()
	hpa := decode[autoscalingv2.HorizontalPodAutoscaler](t, "kubernetes/hpa.yaml").Spec
	require.NotNil(t, hpa.MinReplicas, "hpa.yaml has no minReplicas")
	return hpa
}

func TestPodsAreAddedBeforeTheyAreFull(t *testing.T) {
	d, hpa := deployment(t), scaling(t)
	target := autoscalingv2.CrossVersionObjectReference{APIVersion: d.APIVersion, Kind: d.Kind, Name: d.Name}
	assert.False(t, hpa.ScaleTargetRef != target || d.Spec.Replicas != nil,
		"%+v is scaled, and not %+v alone", hpa.ScaleTargetRef, target)
	assert.False(t, *hpa.MinReplicas < 2 || hpa.MaxReplicas <= *hpa.MinReplicas,
		"%d to %d pods: one is too few, and there is to be room for more", *hpa.MinReplicas, hpa.MaxReplicas)
	most := int64(numberOf(t, d.Spec.Template.Spec.Containers[0].Args, "max-connections"))
	require.False(t, len(hpa.Metrics) != 1 || hpa.Metrics[0].Pods == nil || hpa.Metrics[0].Pods.Target.Type != autoscalingv2.AverageValueMetricType,
		"pods are scaled by %+v", hpa.Metrics)
	if each := hpa.Metrics[0].Pods.Target.AverageValue.Value(); each <= 0 || each >= most*15/16 {
		t.Errorf("a pod is added from %d connections each on, and they begin to make room at %d", each, most*15/16)
	}
}

func TestPodsStopOneAfterAnother(t *testing.T) {
	least := int(*scaling(t).MinReplicas)
	pdb := decode[policyv1.PodDisruptionBudget](t, "kubernetes/pdb.yaml").Spec
	if r := deployment(t).Spec.Strategy.RollingUpdate; r == nil || r.MaxUnavailable == nil || r.MaxUnavailable.String() != "0" {
		t.Errorf("a rollout removes pods before others are ready: %+v", r)
	}
	may := 0
	switch {
	case pdb.MaxUnavailable != nil:
		may = pdb.MaxUnavailable.IntValue()
	case pdb.MinAvailable != nil:
		may = least - pdb.MinAvailable.IntValue()
	}
	assert.False(t, may < 1 || may >= least,
		"of %d pods %d may be evicted", least, may)
}

// TestAllIsInOneNamespace checks manifests, scrapes and the commands of the README.
func TestAllIsInOneNamespace(t *testing.T) {
	ns := decode[corev1.Namespace](t, "kubernetes/namespace.yaml")
	level := ns.Labels["pod-security.kubernetes.io/enforce"]
	assert.Equal(t, "restricted", level, "the namespace enforces %q", level)
	k, j := decode[kustomization](t, "kubernetes/kustomization.yaml"), job(t)
	assert.False(t, k.Namespace != ns.Name || j.Namespace != ns.Name,
		"the namespace is %s, that of kustomization.yaml %s and that of the job %s", ns.Name, k.Namespace, j.Namespace)
	for _, m := range regexp.MustCompile(`kubectl -n (\S+)`).FindAllStringSubmatch(string(read(t, "README.md")), -1) {
		assert.Equal(t, ns.Name, m[1], "README.md: %s", m[0])
	}
	if p := decode[scrape](t, "prometheus/scrape.yaml").pods(t); len(p.Discovery) != 1 || !slices.Equal(p.Discovery[0].Namespaces.Names, []string{ns.Name}) {
		t.Errorf("scrape.yaml looks for pods in %+v", p.Discovery)
	}
}

// TestTheNetworkPolicyProtectsTheAdminPort checks that the network policy opens the client port to
// all, and the admin port to named pods only.
func TestTheNetworkPolicyProtectsTheAdminPort(t *testing.T) {
	c := deployment(t).Spec.Template.Spec.Containers[0]
	client, admin := portOf(t, c, "addr"), portOf(t, c, "admin")
	assert.False(t, client == admin || len(c.Ports) != 2,
		"the server listens on %v and %v, and the container has %v", client, admin, c.Ports)
	np := decode[networkingv1.NetworkPolicy](t, "kubernetes/networkpolicy.yaml").Spec
	open, named := false, false
	for _, rule := range np.Ingress {
		assert.NotEmpty(t, rule.Ports, "a rule opens all ports, to %v", rule.From)
		for _, p := range rule.Ports {
			if p.Port == nil || p.EndPort != nil || p.Protocol != nil && *p.Protocol != corev1.ProtocolTCP {
				t.Errorf("a rule opens %+v: name a port", p)
				continue
			}
			switch p.Port.String() {
			case client.Name, strconv.Itoa(int(client.ContainerPort)):
				open = open || len(rule.From) == 0
			case admin.Name, strconv.Itoa(int(admin.ContainerPort)):
				named = true
				assert.NotEmpty(t, rule.From, "the port %s is open to all", admin.Name)
				for _, peer := range rule.From { // it selects pods of a namespace
					assert.True(t, peer.PodSelector != nil && len(peer.PodSelector.MatchLabels) > 0, admin.Name)
					assert.True(t, peer.NamespaceSelector != nil && len(peer.NamespaceSelector.MatchLabels) > 0, admin.Name)
				}
			default:
				t.Errorf("the pods have no port %s", p.Port)
			}
		}
	}
	assert.False(t, !open || !named,
		"clients get in: %v, Prometheus gets in: %v", open, named)
	for _, direction := range []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress} {
		assert.Contains(t, np.PolicyTypes, direction, "the policy is not about %s", direction)
	}
	assert.Empty(t, np.Egress, "the server calls nobody, and the policy lets it")
}

func TestTheJobFindsTheServiceAndIsMergedWhole(t *testing.T) {
	s, j := decode[corev1.Service](t, "kubernetes/service.yaml"), job(t)
	c := j.Spec.Template.Spec.Containers[0]
	want := net.JoinHostPort(s.Name+"."+decode[kustomization](t, "kubernetes/kustomization.yaml").Namespace+".svc.cluster.local", strconv.Itoa(int(s.Spec.Ports[0].Port)))
	target, _ := valueOf(c.Args, "target")
	assert.Equal(t, want, target, "the target is %s, and the Service %s", target, want)
	for _, arg := range c.Args {
		_, name, uses := strings.Cut(strings.TrimSuffix(arg, ")"), "$(")
		assert.False(t, uses && !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == name }),
			"%s: there is no such variable", arg)
	}
	out, _ := valueOf(c.Args, "out")
	assert.Equal(t, "/dev/stdout", out, "results go to %s, and are read from the log", out)
	if p := j.Spec.BackoffLimitPerIndex; j.Spec.Template.Spec.RestartPolicy != corev1.RestartPolicyNever || p == nil || *p != 0 {
		t.Error("a pod that failed is tried again, when the others have begun")
	}
	doctor := j.Spec.Template.Spec.InitContainers[0].Args
	asked, _ := valueOf(doctor, "connections")
	assert.Contains(t, c.Args, "--connections="+asked, "doctor checks %s connections, not the number of the test", asked)
	readme := string(read(t, "README.md"))
	merge := regexp.MustCompile(`go run (\./\S+) (merge .*--expect-results (\d+).*)`).FindStringSubmatch(readme)
	require.False(t, merge == nil || merge[3] != strconv.Itoa(int(*j.Spec.Completions)),
		"%d pods end, and the README merges %q", *j.Spec.Completions, merge)
	wantFlags(t, must(t, loadtest), strings.Fields(merge[2]))
	_, err := os.Stat(path.Join("../..", merge[1]))
	assert.NoError(t, err)
	for _, used := range []string{"job/" + j.Name + " ", "job-name=" + j.Name + " ", "-c " + c.Name + " "} {
		assert.Contains(t, readme, used, "the README has nothing of %q", used)
	}
}
