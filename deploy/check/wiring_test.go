package check

import (
	"net"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

// manifest reads the object in a file of deploy/kubernetes.
func manifest[T any](t *testing.T, name string) (object T) {
	t.Helper()
	require.NoError(t, yaml.UnmarshalStrict(read(t, "kubernetes/"+name), &object), name)
	return object
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

func readKustomization(t *testing.T) (k kustomization) {
	t.Helper()
	require.NoError(t, yaml.Unmarshal(read(t, "kubernetes/kustomization.yaml"), &k))
	return k
}

// everywhere reports whether a host to listen on stands for all addresses of the machine. 0.0.0.0
// would leave out a pod or a machine with IPv6 only.
func everywhere(host string) bool { return host == "" }

// portOf returns the port of a container on which a flag makes the server listen, at all addresses.
func portOf(t *testing.T, c corev1.Container, flag string) corev1.ContainerPort {
	t.Helper()
	value, _ := valueOf(c.Args, flag)
	host, number, err := net.SplitHostPort(value)
	require.NoError(t, err, "--%s", flag)
	assert.True(t, everywhere(host), "--%s=%s: unreachable from outside of the pod", flag, value)
	for _, p := range c.Ports {
		if strconv.Itoa(int(p.ContainerPort)) == number && p.Name != "" {
			return p
		}
	}
	t.Fatalf("--%s=%s, and the ports with a name are %v", flag, value, c.Ports)
	return corev1.ContainerPort{}
}

func TestPortsAreThoseThatTheServerListensOn(t *testing.T) {
	c := deployment(t).Spec.Template.Spec.Containers[0]
	client, admin := portOf(t, c, "addr"), portOf(t, c, "admin")
	assert.False(t, client == admin || len(c.Ports) != 2,
		"the server listens on %v and %v, and the container has %v", client, admin, c.Ports)
}

func TestTheServiceKeepsClientAddresses(t *testing.T) {
	client := portOf(t, deployment(t).Spec.Template.Spec.Containers[0], "addr")
	s := manifest[corev1.Service](t, "service.yaml").Spec
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
	}
	for _, p := range []*corev1.Probe{c.ReadinessProbe, c.LivenessProbe} {
		assert.GreaterOrEqual(t, p.TimeoutSeconds, int32(5), "a probe waits for %d s: during a flood of many networks it takes longer", p.TimeoutSeconds)
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
	for _, made := range readKustomization(t).ConfigMapGenerator {
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

func maxConnections(t *testing.T) int64 {
	t.Helper()
	value, _ := valueOf(deployment(t).Spec.Template.Spec.Containers[0].Args, "max-connections")
	n, err := strconv.ParseInt(value, 10, 64)
	require.NoError(t, err, "--max-connections")
	return n
}

func scaling(t *testing.T) autoscalingv2.HorizontalPodAutoscalerSpec {
	t.Helper()
	hpa := manifest[autoscalingv2.HorizontalPodAutoscaler](t, "hpa.yaml").Spec
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
	most := maxConnections(t)
	require.False(t, len(hpa.Metrics) != 1 || hpa.Metrics[0].Pods == nil || hpa.Metrics[0].Pods.Target.Type != autoscalingv2.AverageValueMetricType,
		"pods are scaled by %+v", hpa.Metrics)
	if each := hpa.Metrics[0].Pods.Target.AverageValue.Value(); each <= 0 || each >= most*15/16 {
		t.Errorf("a pod is added from %d connections each on, and they begin to make room at %d", each, most*15/16)
	}
}

func TestPodsStopOneAfterAnother(t *testing.T) {
	least := int(*scaling(t).MinReplicas)
	pdb := manifest[policyv1.PodDisruptionBudget](t, "pdb.yaml").Spec
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
	ns := manifest[corev1.Namespace](t, "namespace.yaml")
	level := ns.Labels["pod-security.kubernetes.io/enforce"]
	assert.Equal(t, "restricted", level, "the namespace enforces %q", level)
	k, j := readKustomization(t), job(t)
	assert.False(t, k.Namespace != ns.Name || j.Namespace != ns.Name,
		"the namespace is %s, that of kustomization.yaml %s and that of the job %s", ns.Name, k.Namespace, j.Namespace)
	for _, m := range regexp.MustCompile(`kubectl -n (\S+)`).FindAllStringSubmatch(string(read(t, "README.md")), -1) {
		assert.Equal(t, ns.Name, m[1], "README.md: %s", m[0])
	}
	if p := readScrape(t).pods(t); len(p.Discovery) != 1 || !slices.Equal(p.Discovery[0].Namespaces.Names, []string{ns.Name}) {
		t.Errorf("scrape.yaml looks for pods in %+v", p.Discovery)
	}
}

// TestTheNetworkPolicyProtectsTheAdminPort checks that the network policy opens the client port to
// all, and the admin port to named pods only.
func TestTheNetworkPolicyProtectsTheAdminPort(t *testing.T) {
	c := deployment(t).Spec.Template.Spec.Containers[0]
	client, admin := portOf(t, c, "addr"), portOf(t, c, "admin")
	np := manifest[networkingv1.NetworkPolicy](t, "networkpolicy.yaml").Spec
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
				assert.False(t, len(rule.From) == 0 || slices.ContainsFunc(rule.From, anybody),
					"the port %s is open to all", admin.Name)
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

// anybody reports whether a peer of a policy does not select pods of a namespace.
func anybody(peer networkingv1.NetworkPolicyPeer) bool {
	return peer.PodSelector == nil || len(peer.PodSelector.MatchLabels) == 0 ||
		peer.NamespaceSelector == nil || len(peer.NamespaceSelector.MatchLabels) == 0
}

func TestTheJobFindsTheServiceAndIsMergedWhole(t *testing.T) {
	s, j := manifest[corev1.Service](t, "service.yaml"), job(t)
	c := j.Spec.Template.Spec.Containers[0]
	want := net.JoinHostPort(s.Name+"."+readKustomization(t).Namespace+".svc.cluster.local", strconv.Itoa(int(s.Spec.Ports[0].Port)))
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
