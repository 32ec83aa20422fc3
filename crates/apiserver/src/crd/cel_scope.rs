//! Which names a CEL expression leaves unbound: neither declared from outside nor bound by a macro around them.

use kube_cel::cel::common::ast::{EntryExpr, Expr, IdedExpr};

/// The first unbound name, depth first.
pub(crate) fn unbound<'a>(expression: &'a IdedExpr, declared: &dyn Fn(&str) -> bool) -> Option<&'a str> {
    walk(expression, &mut Vec::new(), declared)
}

fn walk<'a>(
    expression: &'a IdedExpr,
    bound: &mut Vec<&'a str>,
    declared: &dyn Fn(&str) -> bool,
) -> Option<&'a str> {
    match &expression.expr {
        Expr::Unspecified | Expr::Literal(_) => None,
        Expr::Ident(name) => (!bound.contains(&name.as_str()) && !declared(name)).then_some(name),
        Expr::Select(select) => walk(&select.operand, bound, declared),
        Expr::List(list) => list.elements.iter().find_map(|e| walk(e, bound, declared)),
        Expr::Call(call) => {
            call.target.iter().map(|t| &**t).chain(&call.args).find_map(|e| walk(e, bound, declared))
        }
        Expr::Map(map) => map.entries.iter().find_map(|e| walk_entry(&e.expr, bound, declared)),
        Expr::Struct(fields) => fields.entries.iter().find_map(|e| walk_entry(&e.expr, bound, declared)),
        Expr::Comprehension(loops) => {
            let outside =
                [&loops.iter_range, &loops.accu_init].into_iter().find_map(|e| walk(e, bound, declared));
            if outside.is_some() {
                return outside;
            }
            let depth = bound.len();
            bound.extend([loops.iter_var.as_str(), loops.accu_var.as_str()]);
            bound.extend(loops.iter_var2.as_deref());
            let inside = [&loops.loop_cond, &loops.loop_step, &loops.result]
                .into_iter()
                .find_map(|e| walk(e, bound, declared));
            bound.truncate(depth);
            inside
        }
    }
}

fn walk_entry<'a>(
    entry: &'a EntryExpr,
    bound: &mut Vec<&'a str>,
    declared: &dyn Fn(&str) -> bool,
) -> Option<&'a str> {
    match entry {
        EntryExpr::StructField(field) => walk(&field.value, bound, declared),
        EntryExpr::MapEntry(entry) => {
            walk(&entry.key, bound, declared).or_else(|| walk(&entry.value, bound, declared))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube_cel::cel::Program;

    #[test]
    fn macros_bind_their_variables_and_only_there() {
        let cases = [
            ("self.all(i, i > 0)", None),
            ("self.exists(i, self.exists(j, i == j))", None),
            ("self.map(e, e.x).filter(y, y == oldSelf)", None),
            ("self.all(i, i > 0) && i == 1", Some("i")),
            ("other.x == self.y", Some("other")),
            ("{'a': nope}.a == 1", Some("nope")),
        ];
        for (source, want) in cases {
            let program = Program::compile(source).unwrap();
            let found = unbound(program.expression(), &|name| matches!(name, "self" | "oldSelf"));
            assert_eq!(found, want, "{source}");
        }
    }
}
