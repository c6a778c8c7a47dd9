// Which names a scope hides: jinja2 decides by the text, not by what has run, where a name is looked up.
//
// A name that a scope assigns before it reads it (nested scopes do not count), and that no scope around it
// knows, belongs to that scope from its start: until it is assigned it is undefined there and in the scopes
// within, even where the caller has given a variable of that name. jinja2's idtracking.py is the model; only
// its outcome matters here, so each scope is walked once, in the order in which jinja2 meets its names.
#include <map>
#include <set>

#include "text/jinja/parser_impl.h"

namespace quintet::jinja {
namespace {

enum class Origin : uint8_t { context, outer, hidden, parameter };

/// The names of one scope. Inside of an `if` only what a branch adds; `base` is the same scope outside of the
/// branch.
struct Symbols {
  const Symbols* parent = nullptr;
  const Symbols* base = nullptr;
  std::map<int, Origin> references;
  std::set<int> stores;

  bool refers(int name) const { return references.contains(name) || (base != nullptr && base->refers(name)); }
  bool assigns(int name) const { return stores.contains(name) || (base != nullptr && base->assigns(name)); }
  bool knows(int name) const { return refers(name) || (parent != nullptr && parent->knows(name)); }
  void load(int name) {
    if (!knows(name)) references[name] = Origin::context;
  }
  void store(int name) {
    stores.insert(name);
    if (refers(name)) return;
    bool outer = parent != nullptr && parent->knows(name);
    references[name] = outer ? Origin::outer : Origin::hidden;
  }
  void declare(int name) {
    stores.insert(name);
    references[name] = Origin::parameter;
  }
  Symbols branch() const { return {parent, this, {}, {}}; }
  /// After an `if`: what only some branches assign is looked up outside first.
  void merge(const std::vector<Symbols>& branches) {
    std::set<int> assigned;
    for (const Symbols& branch : branches) {
      for (int name : branch.stores) {
        if (!assigns(name)) assigned.insert(name);
      }
    }
    for (const Symbols& branch : branches) {
      for (auto [name, origin] : branch.references) references[name] = origin;
    }
    for (int name : assigned) {
      stores.insert(name);
      references[name] = parent != nullptr && parent->knows(name) ? Origin::outer : Origin::context;
    }
  }
};

class Analyzer {
 public:
  explicit Analyzer(Template& out) : out_(out) {}

  void run() {
    Symbols root;
    visit(out_.body, root);
    finish(root, out_.hidden);
    descend(out_.body, root);
  }

 private:
  void visit(const Expr* e, Symbols& s) const {
    if (e == nullptr) return;
    if (e->kind == ExprKind::name) s.load(e->name);
    for (const ExprPtr& operand : e->operands) visit(operand.get(), s);
    for (const Keyword& keyword : e->keywords) visit(keyword.value.get(), s);
    visit(e->extra_args.get(), s);
    visit(e->extra_keywords.get(), s);
  }

  void assign(const Expr& target, Symbols& s, bool as_parameter) const {
    if (target.kind == ExprKind::name) as_parameter ? s.declare(target.name) : s.store(target.name);
    if (target.kind == ExprKind::namespace_attribute) s.load(target.name);
    for (const ExprPtr& operand : target.operands) assign(*operand, s, as_parameter);
  }

  /// The names that statements use in the scope they stand in; the scopes that they open are left out.
  void visit(const Body& body, Symbols& s) const {
    for (const auto& statement : body) {
      const Stmt& stmt = *statement;
      switch (stmt.kind) {
        case StmtKind::if_: visit_if(stmt, 0, s); break;
        case StmtKind::set:
          visit(stmt.expr.get(), s);
          assign(*stmt.target, s, false);
          break;
        case StmtKind::set_block: assign(*stmt.target, s, false); break;
        case StmtKind::macro: s.store(stmt.macro->name); break;
        case StmtKind::print:
        case StmtKind::with:
          for (const ExprPtr& value : stmt.values) visit(value.get(), s);
          break;
        default: visit(stmt.expr.get(), s); break;
      }
    }
  }

  void visit_if(const Stmt& stmt, size_t branch, Symbols& s) const {
    visit(stmt.branches[branch].test.get(), s);
    // jinja2 sees the later branches together as one, each opening inside of it.
    std::vector<Symbols> branches(3, s.branch());
    visit(stmt.branches[branch].body, branches[0]);
    for (size_t i = branch + 1; branch == 0 && i < stmt.branches.size(); ++i)
      visit_elif(stmt, i, branches[1]);
    visit(stmt.orelse, branches[2]);
    s.merge(branches);
  }

  void visit_elif(const Stmt& stmt, size_t branch, Symbols& s) const {
    visit(stmt.branches[branch].test.get(), s);
    std::vector<Symbols> branches(1, s.branch());
    visit(stmt.branches[branch].body, branches[0]);
    s.merge(branches);
  }

  void finish(const Symbols& s, Hidden& hidden) {
    for (auto [name, origin] : s.references) {
      if (origin != Origin::hidden) continue;
      auto [at, added] = undefined_.try_emplace(name);
      if (added)
        at->second =
            out_.constants.undefined(fmt::format("'{}' is undefined", out_.names[static_cast<size_t>(name)]));
      hidden.emplace_back(name, at->second);
    }
  }

  void open(const Body& body, Symbols& s, Hidden& hidden) {
    visit(body, s);
    finish(s, hidden);
    descend(body, s);
  }

  void open_macro(MacroDef& macro, const Symbols& outer) {
    Symbols s{&outer, nullptr, {}, {}};
    for (int parameter : macro.parameters) s.declare(parameter);
    for (const ExprPtr& value : macro.defaults) visit(value.get(), s);
    if (macro.uses_caller) s.declare(out_.find_name("caller"));
    if (macro.uses_kwargs) s.declare(out_.find_name("kwargs"));
    if (macro.uses_varargs) s.declare(out_.find_name("varargs"));
    open(macro.body, s, macro.hidden);
  }

  void descend(const Body& body, const Symbols& outer) {
    for (const auto& statement : body) {
      Stmt& stmt = *statement;
      Symbols s{&outer, nullptr, {}, {}};
      switch (stmt.kind) {
        case StmtKind::if_:
          for (Branch& branch : stmt.branches) descend(branch.body, outer);
          descend(stmt.orelse, outer);
          break;
        case StmtKind::for_: {
          if (int loop = out_.find_name("loop"); loop >= 0) s.declare(loop);
          assign(*stmt.target, s, true);
          open(stmt.body, s, stmt.hidden);
          Symbols otherwise{&outer, nullptr, {}, {}};
          open(stmt.orelse, otherwise, stmt.hidden_else);
          break;
        }
        case StmtKind::with:
          for (const ExprPtr& target : stmt.targets) assign(*target, s, true);
          open(stmt.body, s, stmt.hidden);
          break;
        case StmtKind::filter_block:
          visit(stmt.body, s);
          visit(stmt.expr.get(), s);
          finish(s, stmt.hidden);
          descend(stmt.body, s);
          break;
        case StmtKind::set_block:
        case StmtKind::generation: open(stmt.body, s, stmt.hidden); break;
        case StmtKind::macro:
        case StmtKind::call_block: open_macro(*stmt.macro, outer); break;
        default: break;
      }
    }
  }

  Template& out_;
  std::map<int, Value> undefined_;  ///< one constant a name
};

}  // namespace

void analyze_scopes(Template& parsed) { Analyzer(parsed).run(); }

}  // namespace quintet::jinja
