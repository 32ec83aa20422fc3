//! What the interpreter lacks, written in what it has.
//!
//! - `Object.spec{a: 1}` is a map that knows its type's name.
//! - `a.b` is `a["b"]`: on what is no map that is an error, and on an optional value it stays optional.
//! - `a.?b` is `a[?"b"]`: what is not there is no value instead of an error.
//! - `variables.x` and `authorizer.requestResource` are names of their own, so that they are found when they are read.
//! - `a == b` compares optional values by what they hold.
//! - `a.optMap(x, f)` and `a.optFlatMap(x, f)` are conditionals.

use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, IdedExpr, ListExpr, LiteralValue,
    MapEntryExpr, MapExpr, SelectExpr, operators,
};

use super::json::TYPE;

/// Compares two values, optional ones by what they hold.
pub(super) const EQUAL: &str = "@equal";

/// The expression in the words of the interpreter. `is_optional` says which variables hold optional values.
pub(super) fn adapt(expression: IdedExpr, is_optional: &dyn Fn(&str) -> bool) -> IdedExpr {
    Adapter { bound: Vec::new(), is_optional }.expression(expression)
}

struct Adapter<'a> {
    /// Names that macros around here bind.
    bound: Vec<String>,
    is_optional: &'a dyn Fn(&str) -> bool,
}

impl Adapter<'_> {
    fn expression(&mut self, IdedExpr { id, expr }: IdedExpr) -> IdedExpr {
        let expr = match expr {
            Expr::Select(select) => self.select(id, select),
            Expr::Call(call) => self.call(id, call),
            Expr::List(list) => Expr::List(ListExpr {
                elements: list.elements.into_iter().map(|e| self.expression(e)).collect(),
                ..list
            }),
            Expr::Map(map) => {
                Expr::Map(MapExpr { entries: map.entries.into_iter().map(|e| self.entry(e)).collect() })
            }
            Expr::Struct(literal) => {
                let mut entries: Vec<_> = literal.entries.into_iter().map(|e| self.entry(e)).collect();
                if literal.type_name != "JSONPatch" {
                    let name = text(id, &literal.type_name);
                    let entry = MapEntryExpr { key: text(id, TYPE), value: name, optional: false };
                    entries.push(IdedEntryExpr { id, expr: EntryExpr::MapEntry(entry) });
                }
                Expr::Map(MapExpr { entries })
            }
            Expr::Comprehension(loops) => Expr::Comprehension(Box::new(self.comprehension(*loops))),
            other => other,
        };
        IdedExpr { id, expr }
    }

    fn select(&mut self, id: u64, select: SelectExpr) -> Expr {
        if let Expr::Ident(name) = &select.operand.expr
            && !self.bound.contains(name)
            && (name == "variables" || (name == "authorizer" && select.field == "requestResource"))
        {
            return match select.test {
                true => Expr::Literal(LiteralValue::Boolean(true.into())),
                false => Expr::Ident(format!("{name}.{}", select.field)),
            };
        }
        let operand = self.expression(*select.operand);
        if select.test {
            return Expr::Select(SelectExpr { operand: Box::new(operand), ..select });
        }
        call(operators::INDEX, None, vec![operand, text(id, &select.field)])
    }

    fn call(&mut self, id: u64, mut found: CallExpr) -> Expr {
        let maps = matches!(found.func_name.as_str(), "optMap" | "optFlatMap") && found.args.len() == 2;
        if let (true, Some(target), Some(Expr::Ident(name))) =
            (maps, found.target.take_if(|_| maps), found.args.first().map(|arg| arg.expr.clone()))
            && let Some(body) = found.args.pop()
        {
            return self.optional_map(id, *target, name, body, found.func_name == "optFlatMap");
        }
        let compares = matches!(found.func_name.as_str(), operators::EQUALS | operators::NOT_EQUALS)
            && found.args.iter().any(|arg| self.may_be_optional(arg));
        let negated = found.func_name == operators::NOT_EQUALS;
        let target = found.target.map(|target| Box::new(self.expression(*target)));
        let args = found.args.into_iter().map(|arg| self.expression(arg)).collect();
        if !compares {
            let func_name = match found.func_name {
                name if name == operators::OPT_SELECT => operators::OPT_INDEX.to_string(),
                name => name,
            };
            return Expr::Call(CallExpr { func_name, target, args });
        }
        let equal = call(EQUAL, None, args);
        if negated { call(operators::LOGICAL_NOT, None, vec![IdedExpr { id, expr: equal }]) } else { equal }
    }

    /// `target.hasValue() ? [target.value()].map(name, body) : []`, as a list of at most one that becomes an optional
    /// value again: the interpreter cannot carry optional values through a loop.
    fn optional_map(&mut self, id: u64, target: IdedExpr, name: String, body: IdedExpr, flat: bool) -> Expr {
        let node = |expr| IdedExpr { id, expr };
        let list = |elements| node(Expr::List(ListExpr::new(elements)));
        let method = |of: &IdedExpr, name: &str| node(call(name, Some(Box::new(of.clone())), Vec::new()));
        let either = |test, yes, no| call(operators::CONDITIONAL, None, vec![test, yes, no]);
        let optional =
            |name: &str, args| node(call(name, Some(Box::new(node(Expr::Ident("optional".into())))), args));
        let target = self.expression(target);
        self.bound.push(name.clone());
        let body = self.expression(body);
        self.bound.pop();
        let step = match flat {
            false => list(vec![body]),
            true => {
                node(either(method(&body, "hasValue"), list(vec![method(&body, "value")]), list(Vec::new())))
            }
        };
        let values =
            node(either(method(&target, "hasValue"), list(vec![method(&target, "value")]), list(Vec::new())));
        let result = node(Expr::Ident("@result".into()));
        let is_empty = node(call(operators::EQUALS, None, vec![result.clone(), list(Vec::new())]));
        let first = node(Expr::Literal(LiteralValue::Int(0.into())));
        let first = node(call(operators::INDEX, None, vec![result, first]));
        Expr::Comprehension(Box::new(ComprehensionExpr {
            iter_range: values,
            iter_var: name,
            iter_var2: None,
            accu_var: "@result".into(),
            accu_init: list(Vec::new()),
            loop_cond: node(Expr::Literal(LiteralValue::Boolean(true.into()))),
            loop_step: step,
            result: node(either(is_empty, optional("none", Vec::new()), optional("of", vec![first]))),
        }))
    }

    fn comprehension(&mut self, loops: ComprehensionExpr) -> ComprehensionExpr {
        let iter_range = self.expression(loops.iter_range);
        let accu_init = self.expression(loops.accu_init);
        let depth = self.bound.len();
        self.bound.extend([loops.iter_var.clone(), loops.accu_var.clone()]);
        self.bound.extend(loops.iter_var2.clone());
        let adapted = ComprehensionExpr {
            iter_range,
            accu_init,
            loop_cond: self.expression(loops.loop_cond),
            loop_step: self.expression(loops.loop_step),
            result: self.expression(loops.result),
            iter_var: loops.iter_var,
            iter_var2: loops.iter_var2,
            accu_var: loops.accu_var,
        };
        self.bound.truncate(depth);
        adapted
    }

    fn entry(&mut self, IdedEntryExpr { id, expr }: IdedEntryExpr) -> IdedEntryExpr {
        let entry = match expr {
            EntryExpr::StructField(field) => MapEntryExpr {
                key: text(id, &field.field),
                value: self.expression(field.value),
                optional: field.optional,
            },
            EntryExpr::MapEntry(entry) => MapEntryExpr {
                key: self.expression(entry.key),
                value: self.expression(entry.value),
                optional: entry.optional,
            },
        };
        IdedEntryExpr { id, expr: EntryExpr::MapEntry(entry) }
    }

    fn may_be_optional(&self, expression: &IdedExpr) -> bool {
        may_be_optional(expression, &|name| !self.bound.iter().any(|b| b == name) && (self.is_optional)(name))
    }
}

/// Whether an expression, not yet adapted, may evaluate to an optional value.
pub(super) fn may_be_optional(expression: &IdedExpr, of_name: &dyn Fn(&str) -> bool) -> bool {
    match &expression.expr {
        Expr::Ident(name) => of_name(name),
        Expr::Select(select) => match &select.operand.expr {
            Expr::Ident(name) if name == "variables" => of_name(&format!("variables.{}", select.field)),
            _ => !select.test && may_be_optional(&select.operand, of_name),
        },
        Expr::Call(call) => match (call.func_name.as_str(), call.args.as_slice()) {
            (operators::OPT_SELECT | operators::OPT_INDEX | "or" | "optMap" | "optFlatMap", _) => true,
            (operators::INDEX, [operand, _]) => may_be_optional(operand, of_name),
            (operators::CONDITIONAL, [_, yes, no]) => {
                may_be_optional(yes, of_name) || may_be_optional(no, of_name)
            }
            _ => call
                .target
                .as_ref()
                .is_some_and(|t| matches!(&t.expr, Expr::Ident(name) if name == "optional")),
        },
        _ => false,
    }
}

fn call(name: &str, target: Option<Box<IdedExpr>>, args: Vec<IdedExpr>) -> Expr {
    Expr::Call(CallExpr { func_name: name.to_string(), target, args })
}

fn text(id: u64, text: &str) -> IdedExpr {
    IdedExpr { id, expr: Expr::Literal(LiteralValue::String(text.into())) }
}
