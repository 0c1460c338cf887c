package main

import "testing"

func TestDelete(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	files := entry("a", ", namespace: shop") + "---\n" + entry("b", ", namespace: shop") + "---\n" + entry("c", ", namespace: shop")
	a.must(t, files, "apply", "-f", "-")

	o := a.do(t, "", "delete", "se", "a", "nope", "-n", "shop")
	if want := (outcome{exitFailure, "", "portolan: nothing was deleted: delete serviceentry/shop/nope: not found\n"}); o != want {
		t.Errorf("%+v", o)
	}
	same(t, "ignoring", a.must(t, "", "delete", "se", "nope", "a", "-n", "shop", "--ignore-not-found"),
		"serviceentry/shop/a  deleted  rev 3\n")
	same(t, "ignoring all", a.must(t, "", "delete", "se", "nope", "a", "-n", "shop", "--ignore-not-found"), "")

	o = a.do(t, files, "delete", "-f", "-")
	if want := (outcome{exitFailure, "", "portolan: nothing was deleted: stdin: document 1 (line 1): delete serviceentry/shop/a: not found\n"}); o != want {
		t.Errorf("%+v", o)
	}
	o = a.do(t, entry("b", `, namespace: shop, resourceVersion: "1"`), "delete", "-f", "-", "--ignore-not-found")
	if o.code != exitConflict {
		t.Errorf("%+v", o)
	}
	if v := a.Store.Version(); v != "3" {
		t.Errorf("the store is at %s", v)
	}
	same(t, "one change", a.must(t, files, "delete", "-f", "-", "--ignore-not-found"),
		"serviceentry/shop/b  deleted  rev 4\nserviceentry/shop/c  deleted  rev 4\n")
}

func TestDeleteTakesObjectsThatAreNotValid(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	a.must(t, entry("a", ""), "apply", "-f", "-")
	same(t, "by key", a.must(t, "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: a}\n", "delete", "-f", "-"),
		"serviceentry/default/a  deleted  rev 3\n")
}

func TestDeleteBadFile(t *testing.T) {
	t.Parallel()
	o := do(t, "kind: [", "delete", "-f", "-")
	if o.code != exitData || o.out != "" {
		t.Errorf("%+v", o)
	}
}
