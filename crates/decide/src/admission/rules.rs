//! Every rule of admission by name, with the code and the reason of the answer when it is broken.

/// A rule of the specification's sections on validation and admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// `metadata.generateName` is not supported.
    NoGenerateName,
    /// `metadata.name` is `spec.podRef.uid`.
    NameIsPodUid,
    /// The pod in `spec.podRef` exists.
    PodExists,
    /// It has the UID in `spec.podRef`.
    PodHasUid,
    /// It has not ended.
    PodIsNotTerminal,
    /// A new request has no active interceptor, and the policy Allow.
    NoStatusOnCreation,
    /// `spec.interceptors` and the labels are those of the pod.
    CopiedFromPod,
    /// The spec does not change after creation.
    SpecIsImmutable,
    /// The active interceptor is one of `spec.interceptors`.
    ActiveInterceptorIsKnown,
    /// Once there is an active interceptor there always is one.
    ActiveInterceptorStays,
    /// The first active interceptor is the one of the highest priority.
    HighestPriorityFirst,
    /// The turn moves to the next one in order, not further.
    NextInOrder,
    /// The turn moves once the interceptor has completed, or its deadline has passed.
    TurnIsOver,
    /// A new turn starts without the marks of the last.
    TurnStartsFresh,
    /// `status.failedAPIEvictionCounter` only rises.
    CounterOnlyRises,
    /// `status.progressTimestamp` is not in the future.
    ProgressNotInFuture,
    /// Reported progress is neither removed nor set back during a turn.
    ProgressIsNotUndone,
    /// Finalizers of requesters have the form of the specification.
    RequesterFinalizerForm,
    /// No DELETE under Forbid while the pod exists.
    DeletionForbidden,
    /// Who writes a request may delete its pod.
    CallerMayDeletePod,
    /// The interceptor annotations of a pod are well formed and fit together.
    InterceptorAnnotations,
    /// The node selector of a maintenance can be read and selects something.
    NodeSelectorIsValid,
    /// Who writes a maintenance may delete all nodes that it can ever select.
    CallerMayDeleteNodes,
    /// Drain plan entries are in order.
    DrainPlanOrder,
    /// Drain plan entries are unique.
    DrainPlanUnique,
    /// Drain plans have a bound.
    DrainPlanLength,
    /// The selectors of drain plan entries can be read.
    DrainPlanSelectors,
    /// The drain plan contains the default entries.
    DrainPlanDefaults,
    /// The drain plan does not change after creation.
    DrainPlanIsImmutable,
    /// A maintenance moves forward through its stages.
    StageMovesForward,
    /// A drain limit is a number of nodes or a percentage.
    DrainLimitIsValid,
}

impl Rule {
    /// All rules, in the order of the specification.
    pub const ALL: [Self; 31] = [
        Self::NoGenerateName,
        Self::NameIsPodUid,
        Self::PodExists,
        Self::PodHasUid,
        Self::PodIsNotTerminal,
        Self::NoStatusOnCreation,
        Self::CopiedFromPod,
        Self::SpecIsImmutable,
        Self::ActiveInterceptorIsKnown,
        Self::ActiveInterceptorStays,
        Self::HighestPriorityFirst,
        Self::NextInOrder,
        Self::TurnIsOver,
        Self::TurnStartsFresh,
        Self::CounterOnlyRises,
        Self::ProgressNotInFuture,
        Self::ProgressIsNotUndone,
        Self::RequesterFinalizerForm,
        Self::DeletionForbidden,
        Self::CallerMayDeletePod,
        Self::InterceptorAnnotations,
        Self::NodeSelectorIsValid,
        Self::CallerMayDeleteNodes,
        Self::DrainPlanOrder,
        Self::DrainPlanUnique,
        Self::DrainPlanLength,
        Self::DrainPlanSelectors,
        Self::DrainPlanDefaults,
        Self::DrainPlanIsImmutable,
        Self::StageMovesForward,
        Self::DrainLimitIsValid,
    ];

    /// The name by which answers and documents call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoGenerateName => "no-generate-name",
            Self::NameIsPodUid => "name-is-pod-uid",
            Self::PodExists => "pod-exists",
            Self::PodHasUid => "pod-has-uid",
            Self::PodIsNotTerminal => "pod-is-not-terminal",
            Self::NoStatusOnCreation => "no-status-on-creation",
            Self::CopiedFromPod => "copied-from-pod",
            Self::SpecIsImmutable => "spec-is-immutable",
            Self::ActiveInterceptorIsKnown => "active-interceptor-is-known",
            Self::ActiveInterceptorStays => "active-interceptor-stays",
            Self::HighestPriorityFirst => "highest-priority-first",
            Self::NextInOrder => "next-in-order",
            Self::TurnIsOver => "turn-is-over",
            Self::TurnStartsFresh => "turn-starts-fresh",
            Self::CounterOnlyRises => "counter-only-rises",
            Self::ProgressNotInFuture => "progress-not-in-future",
            Self::ProgressIsNotUndone => "progress-is-not-undone",
            Self::RequesterFinalizerForm => "requester-finalizer-form",
            Self::DeletionForbidden => "deletion-forbidden",
            Self::CallerMayDeletePod => "caller-may-delete-pod",
            Self::InterceptorAnnotations => "interceptor-annotations",
            Self::NodeSelectorIsValid => "node-selector-is-valid",
            Self::CallerMayDeleteNodes => "caller-may-delete-nodes",
            Self::DrainPlanOrder => "drain-plan-order",
            Self::DrainPlanUnique => "drain-plan-unique",
            Self::DrainPlanLength => "drain-plan-length",
            Self::DrainPlanSelectors => "drain-plan-selectors",
            Self::DrainPlanDefaults => "drain-plan-defaults",
            Self::DrainPlanIsImmutable => "drain-plan-is-immutable",
            Self::StageMovesForward => "stage-moves-forward",
            Self::DrainLimitIsValid => "drain-limit-is-valid",
        }
    }

    /// The HTTP status when it is broken. For the pod the codes are those of the eviction API: 404 if it is gone, 409 if another
    /// one has its name, so that a requester treats both ways of evicting alike.
    pub fn code(self) -> u16 {
        match self {
            Self::PodExists => 404,
            Self::PodHasUid | Self::PodIsNotTerminal => 409,
            Self::DeletionForbidden | Self::CallerMayDeletePod | Self::CallerMayDeleteNodes => 403,
            _ => 422,
        }
    }

    /// The reason in the Status of the answer, which belongs to the code.
    pub fn reason(self) -> &'static str {
        match self.code() {
            403 => "Forbidden",
            404 => "NotFound",
            409 => "Conflict",
            _ => "Invalid",
        }
    }
}

/// One broken rule: what is wrong and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} (rule {})", rule.name())]
pub struct Refusal {
    /// The rule.
    pub rule: Rule,
    /// The field it is about.
    pub field: &'static str,
    /// What is wrong, and what to do about it.
    pub message: String,
}

impl Refusal {
    /// A refusal by this rule.
    pub fn new(rule: Rule, field: &'static str, message: impl Into<String>) -> Self {
        Self { rule, field, message: message.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_has_a_name_of_its_own() {
        let mut names: Vec<&str> = Rule::ALL.into_iter().map(Rule::name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Rule::ALL.len());
    }
}
