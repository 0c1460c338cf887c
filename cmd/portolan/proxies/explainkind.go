package proxies

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/openapi"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/spelling"
)

// lineWidth is how long the lines of descriptions are.
const lineWidth = 78

// explainKind makes a command explain kinds and their fields, beside its subcommands.
func explainKind(env *environment, c *cobra.Command) {
	var output string
	var recursive bool
	c.Use += " KIND[.FIELD...]"
	c.Args = cobra.ExactArgs(1)
	c.ValidArgsFunction = completeFields(env)
	c.Flags().BoolVar(&recursive, "recursive", false, "list the fields of all fields, without what they mean")
	cli.RegisterOutput(c, &output, "text", "json", "yaml")
	c.RunE = func(c *cobra.Command, args []string) error {
		kind, path, err := kindAndPath(cli.WithSide(env.Schemas), args[0])
		if err != nil {
			for _, sub := range c.Commands() {
				if spelling.Similar(args[0], sub.Name()) {
					err = fmt.Errorf("%w; %s is a command", err, sub.CommandPath())
				}
			}
			return exit.With(exit.Usage, err)
		}
		e := openapi.NewExplainer(cli.WithSide(env.Schemas))
		field, err := e.Find(kind, path...)
		switch {
		case err != nil:
			return exit.With(exit.Usage, err)
		case output != "text":
			return cli.WriteDocument(env.Stdout, output, new(e.Schema(field)))
		}
		p := fieldPrinter{explainer: e, recursive: recursive}
		p.head(kind, path, field)
		if recursive {
			p.tree(field, "  ", nil)
		} else {
			p.fields(field)
		}
		_, err = fmt.Fprint(env.Stdout, p.out.String())
		return err
	}
}

// kindAndPath reads the name of a kind, with or without its group, and the path of a field.
func kindAndPath(schemas schema.Set, text string) (*schema.Schema, []string, error) {
	name, rest, _ := strings.Cut(text, ".")
	kind, err := cli.KindNamed(schemas, name)
	if err != nil {
		return nil, nil, err
	}
	if after, ok := strings.CutPrefix(rest+".", kind.Group+"."); ok && kind.Group != "" {
		rest = strings.TrimSuffix(after, ".")
	}
	if rest == "" {
		return kind, nil, nil
	}
	return kind, strings.Split(rest, "."), nil
}

// completeFields offers kinds, and after a dot the fields there.
func completeFields(env *environment) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		var out []cobra.Completion
		last := strings.LastIndex(word, ".")
		if last < 0 && len(args) == 0 {
			for _, kind := range cli.WithSide(env.Schemas).All() {
				out = append(out, cobra.CompletionWithDesc(kind.Singular, strings.Join(kind.ShortNames, ", ")))
			}
		}
		before := word[:max(last, 0)]
		if kind, path, err := kindAndPath(cli.WithSide(env.Schemas), before); last >= 0 && err == nil && len(args) == 0 {
			e := openapi.NewExplainer(cli.WithSide(env.Schemas))
			if at, err := e.Find(kind, path...); err == nil {
				for _, f := range e.Fields(at) {
					out = append(out, cobra.CompletionWithDesc(before+"."+f.Name, f.Type))
				}
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}

// fieldPrinter prints a field for people.
type fieldPrinter struct {
	explainer *openapi.Explainer
	recursive bool
	out       strings.Builder
}

// head prints what a field is.
func (p *fieldPrinter) head(kind *schema.Schema, path []string, f openapi.Field) {
	if len(path) == 0 {
		fmt.Fprintf(&p.out, "%s  %s\n", kind.Kind, strings.Join(kind.APIVersions(), ", "))
	} else {
		fmt.Fprintf(&p.out, "%s.%s  %s\n", kind.Singular, strings.Join(path, "."), marks(f))
	}
	p.text("", f.Description)
	p.values("", f)
	if f.OfType != "" {
		p.out.WriteString("\n")
		p.text("", f.OfType)
	}
}

// fields prints the fields of a field, with what they mean.
func (p *fieldPrinter) fields(of openapi.Field) {
	for _, f := range p.explainer.Fields(of) {
		fmt.Fprintf(&p.out, "\n  %s  %s\n", f.Name, marks(f))
		p.text("    ", f.Description)
		p.values("    ", f)
	}
}

// tree prints the fields of a field and of all below. within are the types that contain it.
func (p *fieldPrinter) tree(of openapi.Field, indent string, within []string) {
	if len(within) == 0 {
		p.out.WriteString("\n")
	}
	within = append(within[:len(within):len(within)], p.explainer.TypeName(of))
	for _, f := range p.explainer.Fields(of) {
		fmt.Fprintf(&p.out, "%s%s  %s\n", indent, f.Name, marks(f))
		if name := p.explainer.TypeName(f); name != "" && !slices.Contains(within, name) {
			p.tree(f, indent+"  ", within)
		}
	}
}

// marks returns the type of a field, and whether it is required.
func marks(f openapi.Field) string {
	out := f.Type
	if f.Format == "date-time" || f.Format == "byte" {
		out += map[string]string{"date-time": ", a time such as 2026-01-31T12:00:00Z", "byte": " in base64"}[f.Format]
	}
	if f.Required {
		out += ", required"
	}
	return out
}

// values prints the values that a field takes, if it takes no others.
func (p *fieldPrinter) values(indent string, f openapi.Field) {
	if len(f.Enum) > 0 {
		p.text(indent, "One of "+strings.Join(f.Enum, ", ")+".")
	}
}

// text prints words in lines of a bounded width.
func (p *fieldPrinter) text(indent, text string) {
	line := indent
	for _, word := range strings.Fields(text) {
		if len(line) > len(indent) && len(line)+1+len(word) > lineWidth {
			p.out.WriteString(line + "\n")
			line = indent
		}
		if len(line) > len(indent) {
			line += " "
		}
		line += word
	}
	if len(line) > len(indent) {
		p.out.WriteString(line + "\n")
	}
}
