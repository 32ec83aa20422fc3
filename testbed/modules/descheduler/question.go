package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
)

// Question is a cluster with a policy.
type Question struct {
	Policy string `json:"policy"`
	// How often to ask at least, and how often if the outcomes differ.
	Least int `json:"least"`
	Most  int `json:"most"`
	// Pods and nodes come from the descheduler's own indexes, in no order, as they do when it runs in a cluster.
	OwnIndexes bool `json:"ownIndexes"`

	Nodes           []*v1.Node                      `json:"nodes"`
	Pods            []*v1.Pod                       `json:"pods"`
	Namespaces      []*v1.Namespace                 `json:"namespaces"`
	Budgets         []*policyv1.PodDisruptionBudget `json:"budgets"`
	PriorityClasses []*schedulingv1.PriorityClass   `json:"priorityClasses"`
	Claims          []*v1.PersistentVolumeClaim     `json:"claims"`
	// What metrics.k8s.io says of nodes and pods, the latter by namespace/name.
	UsageOfNodes map[string]v1.ResourceList `json:"usageOfNodes"`
	UsageOfPods  map[string]v1.ResourceList `json:"usageOfPods"`
	// What a Prometheus query says of nodes.
	Fractions map[string]float64 `json:"fractions"`
}

// Answer has the distinct outcomes, each a list of "plugin namespace/name" in the order of the evictions.
type Answer struct {
	// Why the policy is refused, or why a profile cannot be made of it.
	Refused  string     `json:"refused,omitempty"`
	Outcomes [][]string `json:"outcomes"`
	// How long each run took.
	Runs []Timing `json:"runs,omitempty"`
}

func (q *Question) answer(policyFile string) Answer {
	if err := os.WriteFile(policyFile, []byte(q.Policy), 0o600); err != nil {
		return Answer{Refused: err.Error()}
	}
	answer := Answer{Outcomes: [][]string{}}
	seen := map[string]bool{}
	least, most := max(q.Least, 1), max(q.Most, q.Least, 1)
	for run := 0; run < least || (run < most && len(answer.Outcomes) > 1); run++ {
		outcome, timing, err := q.run(policyFile, int64(run))
		if err != nil {
			return Answer{Refused: err.Error(), Outcomes: [][]string{}}
		}
		answer.Runs = append(answer.Runs, timing)
		key, err := json.Marshal(outcome)
		if err != nil {
			return Answer{Refused: fmt.Sprint(err)}
		}
		if !seen[string(key)] {
			seen[string(key)] = true
			answer.Outcomes = append(answer.Outcomes, outcome)
		}
	}
	slices.SortFunc(answer.Outcomes, slices.Compare)
	return answer
}
